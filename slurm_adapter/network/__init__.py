"""A node's networks, read from the kernel, and what NCCL and Gloo should use of them."""
