"""Head only: what users write into TOML files, read and validated with errors that name the key."""
