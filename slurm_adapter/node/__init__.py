"""What runs on each node. Standard library only, so that it starts in milliseconds."""
