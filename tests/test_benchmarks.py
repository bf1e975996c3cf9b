"""Clients of the benchmarks: errors of the measured server end the benchmark."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from benchmarks.proxy_load import latencies
from benchmarks.storage import _Client


async def test_response_other_than_200_causes_exactly_one_error() -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RuntimeError, match="503"):
            await latencies(f"127.0.0.1:{port}", "/", {}, 1)
    assert problems == []


def test_download_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            wire, _ = server.accept()
            with wire:
                wire.recv(65536)
                wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/api/v1"
        client = _Client({"folder": "f", "url": url, "keys": ("access", "secret")}, 0)
        with pytest.raises(EOFError, match="5 bytes too early"):
            client.get("file", tmp_path / "file")
        thread.join(10)
