"""`python -m fedloom.cli`: the command without its script."""

from fedloom.cli import command

if __name__ == "__main__":
    command()
