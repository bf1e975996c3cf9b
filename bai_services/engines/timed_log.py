"""Log writer of the process engine, in the format of Docker's container logs.

Usage:

    python -I -S timed_log.py FILE MAX_BYTES

The writer copies standard input to the file and prefixes each line with its time of arrival. It
runs as its own process, so that it survives a Hub restart. It imports little, because it is started
with each kernel.
"""

from __future__ import annotations

import os
import sys
import time

READ_BYTES = 64 * 1024
# A longer line is stored in chunks, each with a timestamp.
CHUNK_BYTES = 16 * 1024


class TimedLog:
    """A log file that drops its older half when it exceeds ``max_bytes``."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._partial_line = b""
        self._file = _open_for_append(path)
        self._size = os.fstat(self._file).st_size

    def write(self, content: bytes) -> None:
        """Append output; buffer an incomplete line."""
        prefix = timestamp(time.time_ns())
        *lines, rest = (self._partial_line + content).split(b"\n")
        parts = [part for line in lines for part in (*_chunks(prefix, line), b"\n")]
        whole = len(rest) // CHUNK_BYTES * CHUNK_BYTES
        if whole:
            parts += _chunks(prefix, rest[:whole])
        self._partial_line = rest[whole:]
        self._append(b"".join(parts))

    def close(self) -> None:
        """Write the last incomplete line, and close the file."""
        if self._partial_line:
            self._append(timestamp(time.time_ns()) + self._partial_line)
        os.close(self._file)

    def _append(self, content: bytes) -> None:
        view = memoryview(content)
        try:
            while view:
                count = os.write(self._file, view)
                self._size += count
                view = view[count:]
        except OSError:
            # The disk is full. Drop the output, so that the session can continue.
            return
        if self._size > self._max_bytes:
            self._drop_older_half()

    def _drop_older_half(self) -> None:
        part = self._path + ".part"
        try:
            with open(self._path, "rb") as old, open(part, "wb", opener=_private) as new:
                old.seek(-(self._max_bytes // 2), os.SEEK_END)
                old.readline()
                new.write(old.read())
            # Atomic replacement: a concurrent reader sees either the old file or the new one.
            os.replace(part, self._path)
            before, self._file = self._file, _open_for_append(self._path)
            os.close(before)
        except OSError:
            os.ftruncate(self._file, 0)
        self._size = os.fstat(self._file).st_size


def timestamp(nanoseconds: int) -> bytes:
    """Return a line's timestamp prefix: RFC 3339, UTC, nanoseconds."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}Z ", time.gmtime(seconds)).encode()


def _chunks(prefix: bytes, line: bytes) -> list[bytes]:
    starts = range(0, max(len(line), 1), CHUNK_BYTES)
    return [part for n in starts for part in (prefix, line[n : n + CHUNK_BYTES])]


def _open_for_append(path: str) -> int:
    return _private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def main(path: str, max_bytes: str) -> None:
    try:
        log = TimedLog(path, int(max_bytes))
    except OSError:
        # The log cannot be written. Drain the pipe, so that the session does not block on output.
        while os.read(0, READ_BYTES):
            pass
        return
    while content := os.read(0, READ_BYTES):
        log.write(content)
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
