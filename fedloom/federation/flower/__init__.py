"""Flower as a transport: the processes, and what passes between them. Nothing here knows what a message means.

`shim.py`, `probe.py`, `node.py` and `link.py` are also run or loaded as plain files, without FedLoom and
JAX around them.
"""
