"""Log writer of the process engine, in the format of Docker's container logs.

A separate program, because it outlives the Hub, with few imports, because every start waits for it:

    python -I -S timed_log.py FILE MAX_BYTES

It reads standard input to its end and prefixes each line with its time of arrival.
"""

from __future__ import annotations

import os
import sys
import time

READ_BYTES = 64 * 1024
# A longer line is stored in pieces, each with its own timestamp.
PIECE_BYTES = 16 * 1024


class TimedLog:
    """A log file of at most ``most_bytes``: when full, its older half is dropped."""

    def __init__(self, path: str, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._rest = b""
        self._file = _opened(path)
        self._size = os.fstat(self._file).st_size

    def feed(self, content: bytes) -> None:
        """Append output; an incomplete line is buffered."""
        at = stamp(time.time_ns())
        *lines, rest = (self._rest + content).split(b"\n")
        written = [piece for line in lines for piece in (*_pieces(at, line), b"\n")]
        whole = len(rest) // PIECE_BYTES * PIECE_BYTES
        if whole:
            written += _pieces(at, rest[:whole])
        self._rest = rest[whole:]
        self._write(b"".join(written))

    def close(self) -> None:
        """Write the last incomplete line."""
        if self._rest:
            self._write(stamp(time.time_ns()) + self._rest)
        os.close(self._file)

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        try:
            while view:
                count = os.write(self._file, view)
                self._size += count
                view = view[count:]
        except OSError:
            # Disk full: output is lost, and the program keeps running.
            return
        if self._size > self._most_bytes:
            self._drop_older_half()

    def _drop_older_half(self) -> None:
        part = self._path + ".part"
        try:
            with open(self._path, "rb") as old, open(part, "wb", opener=_private) as new:
                old.seek(-(self._most_bytes // 2), os.SEEK_END)
                old.readline()
                new.write(old.read())
            # Atomic replacement: a concurrent reader sees the old file or the new one.
            os.replace(part, self._path)
            before, self._file = self._file, _opened(self._path)
            os.close(before)
        except OSError:
            os.ftruncate(self._file, 0)
        self._size = os.fstat(self._file).st_size


def stamp(nanoseconds: int) -> bytes:
    """Return the timestamp before a line: nine digits of a second, always UTC."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}Z ", time.gmtime(seconds)).encode()


def _pieces(at: bytes, line: bytes) -> list[bytes]:
    ends = range(0, max(len(line), 1), PIECE_BYTES)
    return [piece for n in ends for piece in (at, line[n : n + PIECE_BYTES])]


def _opened(path: str) -> int:
    return _private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def main(path: str, most_bytes: str) -> None:
    try:
        log = TimedLog(path, int(most_bytes))
    except OSError:
        # The log cannot be written, but the program must not be blocked by that.
        while os.read(0, READ_BYTES):
            pass
        return
    while content := os.read(0, READ_BYTES):
        log.feed(content)
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
