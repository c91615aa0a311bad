"""What the rooms promise: imports go downwards, and nowhere in a circle."""

import pytest

import slurm_adapter
from rooms import SMALL, arrows, drawing

PACKAGES = ("slurm_adapter", *(f"slurm_adapter.{name}" for name in (
    "cli", "show", "launch", "launch.batch", "launch.script", "launch.ssh", "remote",
    "remote.code", "remote.transport", "node", "node.agent", "node.step", "node.ranks",
    "node.view", "node.protocol", "node.system", "node.facts", "config", "contracts", "job",
    "cluster", "network",
)))  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_has_a_circle(package: str) -> None:
    assert drawing(package).endswith("no circle.\n")


def test_every_folder_is_looked_at() -> None:
    root = slurm_adapter.__path__[0]
    found = {"slurm_adapter"}
    for below in PACKAGES:
        found |= {f"{below}.{room[:-1]}" for room in arrows(below) if room.endswith("/")}
    assert found == set(PACKAGES), root


def test_a_circle_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rooms.arrows", lambda _: {"a.py": {"b.py"}, "b.py": {"a.py"}})
    with pytest.raises(ValueError, match=r"a\.py → b\.py → a\.py"):
        drawing("made up")


def test_what_lies_below_all_imports_no_folder() -> None:
    assert all(arrows()[name] <= SMALL for name in SMALL)
