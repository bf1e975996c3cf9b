"""The proxy of the Hub, with the real configurable-http-proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bai_services.core.errors import Unavailable
from bai_services.install.components import node_program, proxy_program
from bai_services.system.hub_proxy import proxy_command
from bai_services.system.ports import free_port
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until_async

WAIT_SECONDS = 60


async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a part of a response, and close the connection. The path gives a header."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    header = head.split()[1].lstrip("/").replace("=", ": ")
    part = b"4\r\npart\r\n" if "chunked" in header else b"part"
    writer.write(f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n".encode() + part)
    await writer.drain()
    writer.close()


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    """The port of a proxy in front of a server whose responses break off."""
    try:
        command = proxy_command(node_program(), proxy_program())
    except Unavailable as error:
        skip_or_fail("proxy", str(error))
    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    target = server.sockets[0].getsockname()[1]
    port, api = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        *command, f"--port={port}", "--ip=127.0.0.1", f"--api-port={api}", "--api-ip=127.0.0.1",
        f"--default-target=http://127.0.0.1:{target}", "--log-level=error",
    )  # fmt: skip

    async def is_listening() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await wait_until_async(is_listening, WAIT_SECONDS, "the proxy")
        yield port
    finally:
        process.kill()
        await process.wait()
        server.close()


@pytest.mark.parametrize("header", ["Content-Length=100", "Transfer-Encoding=chunked"])
async def test_response_that_breaks_off_ends_the_connection_of_the_client(
    port: int, header: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /{header} HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
    async with asyncio.timeout(WAIT_SECONDS):
        received = await reader.read()
    writer.close()
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert b"part" in received
    # The response must not look complete.
    assert not received.endswith(b"0\r\n\r\n")
