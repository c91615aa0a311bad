"""A login node that may be lost and found again: whatever was asked for is asked once more.

For questions only, which may be asked twice: to follow a job, whose files are read by offset.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from slurm_adapter.remote.submit_host import NOTHING
from slurm_adapter.remote.transport.connect_error import TurnedAwayError
from slurm_adapter.remote.transport.port import ConnectionLostError, NoAnswerError
from slurm_adapter.remote.transport.unreachable import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from slurm_adapter.remote.submit_host import Done, SubmitHost

T = TypeVar("T")
_FIRST_S, _GROWTH, _LONGEST_S = 1.0, 1.7, 60.0


class ReconnectingHost:
    """A submit host that is opened again where it was lost.

    Args:
        submit_host: the submit host while it stands.
        again: opens it anew.
        say: gets what is to be told, a line each.
        job: what goes on meanwhile, for people.
    """

    def __init__(
        self,
        submit_host: SubmitHost,
        again: Callable[[], SubmitHost],
        say: Callable[[str], None],
        job: str,
    ) -> None:
        self._submit_host, self._again, self._say, self._job = submit_host, again, say, job
        self.login, self.home, self.python = submit_host.login, submit_host.home, submit_host.python

    def has(self, program: str) -> bool:
        """See `SubmitHost.has`."""
        return self._try(lambda submit_host: submit_host.has(program))

    def run(
        self,
        words: Sequence[str],
        more: Mapping[str, str] = NOTHING,
        without: Collection[str] = (),
        data: bytes | None = None,
        limit_s: float | None = None,
    ) -> Done:
        """See `SubmitHost.run`."""
        return self._try(lambda submit_host: submit_host.run(words, more, without, data, limit_s))

    def make_folder(self, path: str) -> None:
        """See `SubmitHost.make_folder`."""
        self._try(lambda submit_host: submit_host.make_folder(path))

    def write(self, path: str, data: bytes) -> None:
        """See `SubmitHost.write`."""
        self._try(lambda submit_host: submit_host.write(path, data))

    def read(self, places: Sequence[tuple[str, int]]) -> list[tuple[int, bytes]]:
        """See `SubmitHost.read`."""
        return self._try(lambda submit_host: submit_host.read(places))

    def exists(self, path: str) -> bool:
        """See `SubmitHost.exists`."""
        return self._try(lambda submit_host: submit_host.exists(path))

    def remove(self, path: str) -> None:
        """See `SubmitHost.remove`."""
        self._try(lambda submit_host: submit_host.remove(path))

    def close(self) -> None:
        """See `SubmitHost.close`."""
        self._submit_host.close()

    def _try(self, ask: Callable[[SubmitHost], T]) -> T:
        while True:
            try:
                return ask(self._submit_host)
            except (ConnectionLostError, NoAnswerError) as lost:
                self._submit_host.close()
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
                self._submit_host = self._again()
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
