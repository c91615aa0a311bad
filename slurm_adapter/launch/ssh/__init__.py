"""A job over SSH: hosts are looked at, ranks started by agents, watched and ended."""
