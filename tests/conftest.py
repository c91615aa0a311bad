"""Fixtures that stand on the test cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import SlurmCluster, unavailable


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A running three-node cluster; skipped with the reason where none can run."""
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with SlurmCluster.start(Path(__file__).parents[1]) as cluster:
        yield cluster
