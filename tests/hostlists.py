"""What a host list said of a node, in one line."""

from slurm_adapter import Node


def brief(node: Node) -> str:
    """Return what a host list said of a node, as a host file would say it."""
    said = [
        f"{key}={value}"
        for key in ("user", "address", "port", "slots", "python", "interface")
        if (value := getattr(node, key)) is not None and value != node.name
    ]
    return " ".join([node.name, *said])
