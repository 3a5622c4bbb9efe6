"""The documentation: pages, and the scripts that write and build them."""
