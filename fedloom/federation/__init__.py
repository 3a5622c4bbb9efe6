"""A real federation: clients with their own data and memories, behind a transport that may lose anything."""
