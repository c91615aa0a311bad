"""An agent's line to its head: messages both ways, room for them, and noticing its loss."""

from __future__ import annotations

import os
import time

from slurm_adapter.node.protocol import framing
from slurm_adapter.node.protocol.framing import frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.node.protocol.framing import FrameReader
    from slurm_adapter.node.system.poll import Watch

_STDIN, _STDOUT = 0, 1
_READ_BYTES = 1 << 16
# What waits for the head in this process; above that ranks wait, too.
_MUCH_WAITING, _LITTLE_WAITING = 1 << 20, 1 << 18


class HeadChannel:
    """Stdin and stdout of an agent, neither of which ever makes it wait."""

    def __init__(self, watch: Watch, reader: FrameReader, link_s: float) -> None:
        """Take the line over.

        Args:
            watch: where whoever waits learns of something to read, and of room.
            reader: what messages have been read with so far.
            link_s: seconds of silence after which the head is taken for lost.
        """
        self._watch, self._reader, self._link_s = watch, reader, link_s
        self._beat_s = framing.beat_s(link_s)
        self._waiting: list[bytes] = []
        self._size = 0
        self._writing = False
        self._heard_s = self._beaten_s = time.monotonic()
        self.lost = False
        """Whether nobody hears us any more."""
        self.silent = False
        """Whether that is because the head said nothing for too long."""
        self.full = False
        """Whether so much waits for the head that ranks should, too."""
        os.set_blocking(_STDIN, False)
        os.set_blocking(_STDOUT, False)
        watch.add(_STDIN, None)

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
        elif now_s - self._beaten_s >= self._beat_s:
            self._beaten_s = now_s
            self.tell(framing.BEAT)

    def tell(self, kind: bytes, *texts: str) -> None:
        """Have a message made of texts sent."""
        self.send(frame(kind, "\0".join(texts).encode("utf-8", "surrogateescape")))

    def send(self, data: bytes) -> None:
        """Have a whole message sent."""
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

    def listen(self) -> list[tuple[bytes, bytes]]:
        """Return the messages that have come, as (kind, body)."""
        if self.lost:
            return []
        try:
            data = os.read(_STDIN, _READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._lose()
            return []
        self._heard_s = time.monotonic()
        return self._reader.feed(data)

    def finish(self) -> None:
        """Have the head hear the last of it, as long as it is there."""
        while not self.lost and self._waiting:
            self._watch.wait(self._link_s)
            before = self._size
            self.listen()
            self.flush()
            if self._size == before and time.monotonic() - self._heard_s > self._link_s:
                return
