"""An agent's channel to its head: messages both ways, room for them, and noticing its loss.

The only piece that reads and writes an agent's streams, whatever it was asked for.
"""

from __future__ import annotations

import os
import time

from slurm_adapter.node.protocol.encoding import BEAT_FRAME, agent_frame, read_request
from slurm_adapter.node.protocol.framing import LONGEST_BEAT_S, FrameReader, beat_s
from slurm_adapter.node.protocol.messages import Beat, Kill, Refused, Stop, Unfit
from slurm_adapter.node.system.poll import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.errors import AdapterError
    from slurm_adapter.node.protocol.messages import AgentMessage, Request

_STDIN, _STDOUT = 0, 1
_READ_BYTES = 1 << 16
# What waits for the head in this process; above that ranks wait, too.
_MUCH_WAITING, _LITTLE_WAITING = 1 << 20, 1 << 18
_LINK_S = 60.0
_LOOK_S = 0.25


class HeadGoneError(Exception):
    """Nobody waits any more for what is being done."""


class HeadChannel:
    """Stdin and stdout of an agent, neither of which ever makes it wait."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._reader = FrameReader()
        self._link_s = _LINK_S
        self._beat_s = LONGEST_BEAT_S
        self._come: list[Request] = []
        """What the head has said and nobody was told yet."""
        self._waiting: list[bytes] = []
        self._size = 0
        self._writing = False
        self._heard_s = self._beaten_s = self._looked_s = time.monotonic()
        self.lost = False
        """Whether nobody hears us any more."""
        self.silent = False
        """Whether that is because the head said nothing for too long."""
        self.full = False
        """Whether so much waits for the head that ranks should, too."""
        os.set_blocking(_STDIN, False)
        os.set_blocking(_STDOUT, False)
        self._watch.add(_STDIN, None)

    def join(self, watch: Watch, link_s: float) -> None:
        """Be waited for together with other things, and heed silence from now on.

        Args:
            watch: where whoever waits learns of something to read, and of room.
            link_s: seconds of silence after which the head is taken for lost.
        """
        self._watch, self._link_s, self._beat_s = watch, link_s, beat_s(link_s)
        self._heard_s = self._beaten_s = time.monotonic()
        if self.lost:
            return
        watch.add(_STDIN, None)
        if self._writing:
            watch.add(_STDOUT, None, room=True)

    @property
    def due_s(self) -> float:
        """Return the moment at which `heed_time` has something to do."""
        return min(self._beaten_s + self._beat_s, self._heard_s + self._link_s)

    def heed_time(self, now_s: float) -> None:
        """Send a heartbeat where one is due; notice a head that is not heard any more."""
        if self.lost:
            return
        if now_s - self._heard_s > self._link_s:
            self.silent = True
            self._lose()
        else:
            self._beat(now_s)

    def _beat(self, now_s: float) -> None:
        if now_s - self._beaten_s >= self._beat_s:
            self._beaten_s = now_s
            self._send(BEAT_FRAME)

    def heed_head(self) -> None:
        """Called again and again while much is done: says that it goes on, and whether it is to.

        Raises:
            HeadGoneError: it is not.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        self._beat(now_s)
        self._come = self.listen()
        self.flush()
        if self.lost or any(isinstance(one, (Stop, Kill)) for one in self._come):
            raise HeadGoneError

    def tell(self, message: AgentMessage) -> None:
        """Have a message sent."""
        self._send(agent_frame(message))

    def _send(self, data: bytes) -> None:
        if not self.lost:
            self._waiting.append(data)
            self._size += len(data)
            self.flush()

    def flush(self) -> None:
        """Write what the head has room for."""
        try:
            while self._waiting:
                data = self._waiting[0]
                count = os.write(_STDOUT, data)
                self._size -= count
                if count < len(data):
                    self._waiting[0] = data[count:]
                    break
                del self._waiting[0]
        except BlockingIOError:
            pass
        except OSError:  # the other end is gone
            self._lose()
        self._watch_room(wanted=bool(self._waiting))
        self.full = self._size > (_LITTLE_WAITING if self.full else _MUCH_WAITING)

    def _watch_room(self, *, wanted: bool) -> None:
        if wanted == self._writing:
            return
        self._writing = wanted
        if wanted:
            self._watch.add(_STDOUT, None, room=True)
        else:
            self._watch.remove(_STDOUT)

    def _lose(self) -> None:
        if self.lost:
            return
        self.lost = True
        self._waiting.clear()
        self._size = 0
        self._watch.remove(_STDIN)

    def wait(self, limit_s: float) -> None:
        """Wait for a message or for room, `limit_s` seconds at most."""
        self._watch.wait(limit_s)

    def listen(self) -> list[Request]:
        """Return the messages that have come."""
        come, self._come = self._come, []
        if self.lost:
            return come
        try:
            data = os.read(_STDIN, _READ_BYTES)
        except BlockingIOError:
            return come
        except OSError:
            data = b""
        if not data:
            self._lose()
            return come
        self._heard_s = time.monotonic()
        messages = [read_request(*one) for one in self._reader.feed(data)]
        return come + [one for one in messages if not isinstance(one, Beat)]

    def next(self, limit_s: float) -> Request | None:
        """Return the next message, while there is nothing else to be done; None: there is none.

        `limit_s` are seconds of silence after which the head is taken for lost.
        """
        asked_s = time.monotonic()
        while not (self._come or self.lost):
            left_s = max(asked_s, self._heard_s) + limit_s - time.monotonic()
            if left_s <= 0:
                return None
            self.wait(left_s)
            self._come = self.listen()
            self.flush()
        return self._come.pop(0) if self._come else None

    def finish(self) -> None:
        """Have the head hear the last of it, as long as it is there."""
        while not self.lost and self._waiting:
            self._watch.wait(self._link_s)
            before = self._size
            self._come = self.listen()
            self.flush()
            if self._size == before and time.monotonic() - self._heard_s > self._link_s:
                return


def unfit(error: AdapterError) -> Unfit:
    """Return an error as the head is told of it."""
    return Unfit(error.exit_status, error.found, error.remedy)


def refused(error: AdapterError | OSError) -> Refused:
    """Return why a request was not done as the head is told of it."""
    if not isinstance(error, OSError):
        return Refused(error.found, error.remedy)
    name = error.filename
    where = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
    return Refused(f"{where}: {error.strerror}" if where else str(error.strerror), "")
