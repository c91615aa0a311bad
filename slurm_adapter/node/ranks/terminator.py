"""When what is to end gets which signal: SIGTERM, after a grace SIGKILL, and that again and again.

Pure: it is told the time, and says what to send. Who sends it, and to whom, it does not know.
"""

from __future__ import annotations

from slurm_adapter import signals

_NEVER = float("inf")


class Terminator:
    """The end of some processes, once it has begun."""

    def __init__(self, again_s: float) -> None:
        """Wait for a beginning.

        Args:
            again_s: seconds from one SIGKILL to the next: what forks meanwhile may be missed.
        """
        self._again_s = again_s
        self._term_due = False
        self._kill_at_s = _NEVER
        self.begun = False
        """Whether anything is to end."""
        self.killed_at_s = _NEVER
        """When the first SIGKILL was due; infinite before."""

    def begin(self, now_s: float, grace_s: float) -> None:
        """Have all end, `grace_s` seconds from now at the latest; only the first time counts."""
        if self.begun:
            return
        self.begun = self._term_due = True
        self._kill_at_s = now_s + grace_s

    def kill(self, now_s: float) -> None:
        """Have all end at once, whatever grace there was."""
        self.begun, self._term_due = True, False
        self._kill_at_s = now_s

    def due(self, now_s: float) -> int | None:
        """Return what is to be sent now, once each time it is due."""
        if self._term_due:
            self._term_due = False
            return signals.SIGTERM
        if now_s < self._kill_at_s:
            return None
        self.killed_at_s = min(self.killed_at_s, now_s)
        self._kill_at_s = now_s + self._again_s
        return signals.SIGKILL

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until something is due; infinite where nothing has begun."""
        return 0.0 if self._term_due else max(0.0, self._kill_at_s - now_s)
