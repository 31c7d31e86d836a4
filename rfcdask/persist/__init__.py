"""What is kept on disk, and what may be read back.

models      saved models: one JSON file and one zarr group, never pickle
persistable which classes may be saved
replacing   files and folders that take their name when they are whole
locks       one process at a time
untrusted   files from others: what may stand in them, and how large it may be
redact      credentials in URLs, shown and kept nowhere
"""
