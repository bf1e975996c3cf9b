"""``ServiceClient``: timeouts and unclosed clients; see also ``test_rest_clients.py``."""

from __future__ import annotations

import asyncio
import gc

import pytest

from bai_services.core import errors
from bai_services.service_client import ServiceClient
from tests.rest_server import TOKEN, rest_server


async def test_hanging_manager_is_unavailable() -> None:
    released = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, ServiceClient(f"http://127.0.0.1:{port}", TOKEN) as client:
        with pytest.raises(errors.Unavailable):
            await client.post("/echo", {}, timeout_seconds=0.05)
        released.set()


async def test_unclosed_client_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with rest_server() as url:
        client = ServiceClient(url, TOKEN)
        await client.get("/echo")
        del client
        gc.collect()
    assert not caplog.records
