"""The server's half of the app: everything is in FedLoom, which is installed where this runs."""

from fedloom.federation.flower.serving import app

__all__ = ["app"]
