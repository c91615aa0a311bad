"""A login node that may be lost and found again: whatever was asked for is asked once more.

For questions only, which may be asked twice: to follow a job, whose files are read by offset.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from slurm_adapter.remote.submit_host import NOTHING
from slurm_adapter.remote.transport.errors import TurnedAwayError
from slurm_adapter.remote.transport.port import ConnectionLostError, NoAnswerError
from slurm_adapter.remote.transport.unreachable import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from slurm_adapter.remote.submit_host import Desk, Done

T = TypeVar("T")
_FIRST_S, _GROWTH, _LONGEST_S = 1.0, 1.7, 60.0


class Patient:
    """A desk that is opened again where it was lost.

    Args:
        desk: the desk while it stands.
        again: opens it anew.
        say: gets what is to be told, a line each.
        job: what goes on meanwhile, for people.
    """

    def __init__(
        self, desk: Desk, again: Callable[[], Desk], say: Callable[[str], None], job: str
    ) -> None:
        self._desk, self._again, self._say, self._job = desk, again, say, job
        self.login, self.home, self.python = desk.login, desk.home, desk.python

    def has(self, program: str) -> bool:
        """See `Desk.has`."""
        return self._try(lambda desk: desk.has(program))

    def run(
        self,
        words: Sequence[str],
        more: Mapping[str, str] = NOTHING,
        without: Collection[str] = (),
        data: bytes | None = None,
        limit_s: float | None = None,
    ) -> Done:
        """See `Desk.run`."""
        return self._try(lambda desk: desk.run(words, more, without, data, limit_s))

    def make_folder(self, path: str) -> None:
        """See `Desk.make_folder`."""
        self._try(lambda desk: desk.make_folder(path))

    def write(self, path: str, data: bytes) -> None:
        """See `Desk.write`."""
        self._try(lambda desk: desk.write(path, data))

    def read(self, places: Sequence[tuple[str, int]]) -> list[tuple[int, bytes]]:
        """See `Desk.read`."""
        return self._try(lambda desk: desk.read(places))

    def exists(self, path: str) -> bool:
        """See `Desk.exists`."""
        return self._try(lambda desk: desk.exists(path))

    def remove(self, path: str) -> None:
        """See `Desk.remove`."""
        self._try(lambda desk: desk.remove(path))

    def close(self) -> None:
        """See `Desk.close`."""
        self._desk.close()

    def _try(self, ask: Callable[[Desk], T]) -> T:
        while True:
            try:
                return ask(self._desk)
            except (ConnectionLostError, NoAnswerError) as lost:
                self._desk.close()
                self._say(f"{lost.found}; {self._job} goes on, connecting again")
                self._open()

    def _open(self) -> None:
        """Open it again, with growing intervals.

        Raises:
            UnreachableError: it is there, and turns us away.
        """
        wait_s, told = _FIRST_S, ""
        while True:
            try:
                self._desk = self._again()
            except UnreachableError as error:
                failure = error.failures[0]
                if isinstance(failure.error, TurnedAwayError):
                    raise
                if failure.reason != told:
                    told = failure.reason
                    self._say(f"{self.login}: {told}; trying again")
            except (ConnectionLostError, NoAnswerError):
                pass
            else:
                self._say(f"{self.login} is connected again")
                return
            time.sleep(wait_s)
            wait_s = min(_LONGEST_S, wait_s * _GROWTH)
