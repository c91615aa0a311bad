"""Floor 4: what runs on each node. Standard library only, so that it starts in milliseconds."""
