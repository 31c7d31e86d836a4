"""``python -m rfcdask``: the command line where the script is not on the path."""

from rfcdask.cli import main

if __name__ == "__main__":
    main(prog_name="python -m rfcdask")
