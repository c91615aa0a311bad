"""The far end of an SSH connection: one process on a host that serves the head's requests."""
