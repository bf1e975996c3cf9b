"""HTTP, websocket and TCP clients of `benchmarks.proxy`, with minimal overhead."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Mapping

from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

CHUNK = b"z" * 2**20
TIMEOUT_SECONDS = 60


class _Connection(asyncio.BufferedProtocol):
    """A persistent HTTP/1.1 connection."""

    _transport: asyncio.Transport
    _answer: asyncio.Future[None]

    def __init__(self, address: str, path: str, headers: Mapping[str, str]) -> None:
        self._address = address
        self._buffer = memoryview(bytearray(2**18))
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {address}",
            *(f"{k}: {v}" for k, v in headers.items()),
        ]
        self._request = "\r\n".join([*lines, "", ""]).encode()
        self._head = b""
        self._left: int | None = None
        self._is_chunked = False
        self._end = b""

    async def open(self) -> None:
        host, _, port = self._address.rpartition(":")
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, host, int(port))

    async def get(self) -> None:
        self._answer = asyncio.get_running_loop().create_future()
        self._head, self._left = b"", None
        self._transport.write(self._request)
        await self._answer

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._left is None or self._is_chunked:
            self._read(bytes(self._buffer[:nbytes]))
        else:
            self._count(nbytes)

    def _read(self, data: bytes) -> None:
        if self._left is None:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._begin(head.lower())
        if self._is_chunked:
            # The body ends with "0\r\n\r\n", which does not occur earlier in the app's response.
            self._end = (self._end + data)[-5:]
            if self._end == b"0\r\n\r\n":
                self._finish()
            return
        self._count(len(data))

    def _count(self, count: int) -> None:
        assert self._left is not None
        self._left -= count
        if self._left <= 0:
            self._finish()

    def _finish(self) -> None:
        # A response other than 200 has already failed.
        if not self._answer.done():
            self._answer.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(EOFError(self._address))

    def close(self) -> None:
        self._transport.close()

    def _begin(self, head: bytes) -> None:
        if b" 200 " not in head.partition(b"\r\n")[0]:
            self._answer.set_exception(RuntimeError(head.decode()))
        self._is_chunked = b"transfer-encoding: chunked" in head
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        self._left, self._end = int(length or 0), b""


async def latencies(address: str, path: str, headers: Mapping[str, str], count: int) -> list[float]:
    """Send ``count`` sequential requests on one connection; return their durations.

    The durations are in seconds, in ascending order.
    """
    connection = _Connection(address, path, headers)
    await connection.open()
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        await connection.get()
        taken.append(time.perf_counter() - begun)
    connection.close()
    return sorted(taken)


async def requests_per_second(
    address: str, path: str, headers: Mapping[str, str], count: int, at_once: int
) -> float:
    """Send ``count`` requests over ``at_once`` connections; return requests per second.

    Each connection sends ``count // at_once`` requests, but at least one. If ``count`` exceeds
    ``at_once``, each connection first sends one request that is not measured.
    """
    connections = [_Connection(address, path, headers) for _ in range(at_once)]
    for connection in connections:
        await connection.open()
    if count > at_once:
        await asyncio.gather(*(connection.get() for connection in connections))

    async def ask(connection: _Connection) -> None:
        for _ in range(max(1, count // at_once)):
            await connection.get()

    begun = time.perf_counter()
    await asyncio.gather(*map(ask, connections))
    taken = time.perf_counter() - begun
    for connection in connections:
        connection.close()
    return max(1, count // at_once) * at_once / taken


async def websocket_times(
    address: str, path: str, headers: Mapping[str, str], count: int
) -> list[float]:
    """Return the durations of ``count`` round trips over one websocket, in seconds."""
    websocket = await websocket_connect(HTTPRequest(f"ws://{address}{path}", headers=dict(headers)))
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        await websocket.write_message(b"ping" * 16, binary=True)
        await websocket.read_message()
        taken.append(time.perf_counter() - begun)
    websocket.close()
    return taken


def bytes_per_second(port: int, streams: int, stream_bytes: int, *, is_push: bool) -> float:
    """Transfer data over concurrent TCP streams; return the total bytes per second.

    Each stream sends ``stream_bytes`` to ``port`` if ``is_push``, and otherwise receives them.
    """
    failures: list[str] = []

    def one() -> None:
        count = _push(port, stream_bytes) if is_push else _pull(port, stream_bytes)
        if count != stream_bytes:
            failures.append(f"{count} of {stream_bytes} bytes")

    threads = [threading.Thread(target=one) for _ in range(streams)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(failures[0])
    return streams * stream_bytes / (time.perf_counter() - begun)


def _pull(port: int, size: int) -> int:
    count, buffer = 0, bytearray(2**20)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as there:
        there.sendall(b"%d\n" % size)
        while read := there.recv_into(buffer):
            count += read
    return count


def _push(port: int, size: int) -> int:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as there:
        there.sendall(b"0\n")
        left = size
        while left > 0:
            there.sendall(CHUNK[:left])
            left -= len(CHUNK)
        there.shutdown(socket.SHUT_WR)
        answer = b""
        while content := there.recv(100):
            answer += content
    return int(answer)
