"""Connections to nodes: over SSH as the user's own `ssh` would make them, or to this machine."""
