"""`python -m fedloom.cli`: the command without its script."""

import sys

from fedloom.cli import main

if __name__ == "__main__":
    sys.exit(main())
