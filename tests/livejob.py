"""A job on a screen of its own, by a clock of its own; no process runs."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_adapter.node.ranks.events import Output
from slurm_adapter.show.lines import LinePrinter, LogChoice
from slurm_adapter.show.live import Screen, live_or_plain
from terminal import Terminal, terminal

LOSS = b"epoch 12 step 3400/7800 loss 2.1843 lr 3.0e-04 tokens/s 184320 memory 71.2 GiB\n"
_SCREENS = Path(__file__).with_name("screens")


@dataclass
class Job:
    """A screen for a job, and the clock it goes by."""

    screen: Screen
    terminal: Terminal
    now_s: list[float]
    close: Callable[[], None]
    """Ends the screen."""

    def wait(self, seconds: float) -> None:
        """Let time pass, as the event loop does: it ticks when something is due."""
        end_s = self.now_s[0] + seconds
        while self.now_s[0] < end_s:
            self.now_s[0] = min(end_s, self.now_s[0] + max(self.screen.due_s, 0.001))
            self.screen.tick()

    def wait_long(self, seconds: float) -> None:
        """Let time pass in one step, up to its last second."""
        self.now_s[0] += seconds - 1
        self.wait(1.0)

    def print(self, rank: int, lines: bytes, *, is_error: bool = False) -> None:
        self.screen.show(Output(rank, lines, is_error=is_error))

    def run(self, nodes: int) -> None:
        """Have all ranks running and the panel drawn."""
        for index in range(nodes):
            self.screen.state(index, "running")
        self.wait(1.0)

    @property
    def panel(self) -> list[str]:
        """The rows from the panel's title on."""
        return below(self.terminal.rows())


def below(rows: Sequence[str]) -> list[str]:
    titles = [number for number, row in enumerate(rows) if row.startswith("── ")]
    return list(rows[titles[-1] :]) if titles else []


def names(count: int) -> list[str]:
    width = len(str(count))
    return [f"gpu-n{number:0{width}}" for number in range(1, count + 1)]


@contextmanager
def job(
    nodes: int = 1,
    per_node: int = 1,
    size: tuple[int, int] = (80, 24),
    logs: str = "all",
    **env: str,
) -> Iterator[Job]:
    """Give a job on a screen of a size; its ranks are not running yet."""
    now_s = [1000.0]
    ranks = [range(node * per_node, (node + 1) * per_node) for node in range(nodes)]
    with terminal(*size, **env) as shown:
        streams = (shown.stream, shown.stream)
        labels = [str(rank) for rank in range(nodes * per_node)]
        choice = LogChoice.parse(logs, nodes * per_node)
        printer = LinePrinter(labels, choice, streams)
        with ExitStack() as stack:
            screen = stack.enter_context(
                live_or_plain(names(nodes), streams=streams, clock=lambda: now_s[0])
            )
            screen.begin(printer, ranks)
            yield Job(screen, shown, now_s, stack.close)


def golden(name: str, rows: Sequence[str]) -> None:
    """Compare with what was looked at and found good; `GOLDEN=write` writes it anew."""
    path = _SCREENS / f"{name}.txt"
    text = "".join(f"{row}\n" for row in rows)
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()
