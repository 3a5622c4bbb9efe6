"""The version of FedLoom."""

__version__ = "0.1.0"
