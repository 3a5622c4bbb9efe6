"""The version of FedLoom."""

__version__ = "0.2.0"
