"""Facts that only the node itself can tell: accelerators, addresses, ports, networks, NCCL."""
