"""The command line."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; ranks take a short way that loads none of the head's libraries."""
    try:
        return _main(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were being loaded
        return 130


def _main(words: list[str]) -> int:
    if words and words[0] in ("exec", "env", "finish"):
        from slurm_adapter.node.step.main import main as node_main

        return node_main(words)
    from slurm_adapter.cli.app import main as head_main

    return head_main(words)
