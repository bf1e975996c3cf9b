"""Progress of an import, and the error of a source that cannot be read."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from bai_services.core.coded_text import CodedText
from bai_services.core.errors import Conflict


class SourceError(Exception):
    """A source that cannot be read; the message is for users and contains no secret.

    ``coded``: the message as a code with values, None for messages without a code.
    """

    # Whether another attempt may succeed without a change of the request.
    is_temporary = False

    def __init__(self, problem: str | CodedText) -> None:
        super().__init__(str(problem))
        self.coded = problem if isinstance(problem, CodedText) else None


class SlowSource(SourceError):
    """A source that sends too few bytes per second."""

    is_temporary = True


class Transfer:
    """Progress of an import, for the thread that downloads and the loop that observes it."""

    def __init__(self) -> None:
        self.files = 0
        # Bytes of complete files, and of the file that is being received.
        self.complete_bytes = 0
        self.partial_bytes = 0
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._connected: socket.socket | None = None

    @property
    def bytes(self) -> int:
        return self.complete_bytes + self.partial_bytes

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        with self._lock:
            self._cancelled.set()
            if self._connected is not None:
                shut_down(self._connected)

    @contextlib.contextmanager
    def using(self, connected: socket.socket) -> Iterator[None]:
        """Shut a connection down when the import is cancelled, because a thread may wait for data.

        Raises
        ------
        Conflict
            If the import was cancelled.
        """
        with self._lock:
            self._connected = connected
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._connected = None

    def check(self) -> None:
        """Raise ``Conflict`` if the import was cancelled."""
        if self.is_cancelled:
            raise Conflict("the import was cancelled")

    def wait(self, seconds: float) -> None:
        """Wait until the time is over or the import is cancelled."""
        self._cancelled.wait(seconds)
        self.check()

    def file_complete(self, size_bytes: int) -> None:
        self.files += 1
        self.complete_bytes += size_bytes
        self.partial_bytes = 0


def shut_down(connected: socket.socket) -> None:
    """Unblock other threads that wait for data of a connection."""
    with contextlib.suppress(OSError):
        # After ``SSLSocket.shutdown``, the next read would raise ``ValueError``.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
