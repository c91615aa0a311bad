"""One figure with its goal, as a row of the table."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Figure:
    """What was measured, beside what, and whether the goal holds."""

    HEADER: ClassVar[str] = (
        "| what | ours | beside | goal | measured | held |\n| --- | --- | --- | --- | --- | --- |"
    )

    name: str
    ours: str
    beside: str
    goal: str
    measured: str
    held: bool

    def row(self) -> str:
        """Return the figure as a line of a Markdown table."""
        held = "yes" if self.held else "**no**"
        cells = (self.name, self.ours, self.beside, self.goal, self.measured, held)
        return f"| {' | '.join(cells)} |"
