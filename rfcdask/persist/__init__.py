"""What is kept on disk, and what may be read back.

models      saved models: one JSON file and one zarr group, never pickle
state       parameters as JSON, and whether the parts of a saved model fit each other
files       files and folders that get their name when they are complete, and file locks
untrusted   input from others: what files may hold, and credentials in URLs
"""
