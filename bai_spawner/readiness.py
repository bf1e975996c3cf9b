"""Readiness check of a started server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from bai_services.engines.base import Exit

REQUEST_TIMEOUT_SECONDS = 2
ENGINE_POLL_INTERVAL_SECONDS = 0.25


async def wait_until_ready(
    url: str,
    timeout_seconds: float,
    step_seconds: float,
    poll_exit: Callable[[], Awaitable[Exit | None]],
) -> Exit | None:
    """Poll ``url`` with GET until it responds with a status below 500.

    Return None after such a response, or the server's exit if ``poll_exit`` reports it first.

    Raises
    ------
    TimeoutError
        If neither happens within ``timeout_seconds``.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    next_engine_poll = loop.time() + ENGINE_POLL_INTERVAL_SECONDS
    while True:
        if await _responds(url, min(REQUEST_TIMEOUT_SECONDS, max(0.1, deadline - loop.time()))):
            return None
        if loop.time() >= next_engine_poll:
            next_engine_poll = loop.time() + ENGINE_POLL_INTERVAL_SECONDS
            if (ended := await poll_exit()) is not None:
                return ended
        if loop.time() >= deadline:
            raise TimeoutError
        await asyncio.sleep(step_seconds)


async def _responds(url: str, timeout_seconds: float) -> bool:
    # A raw request: setting up an HTTP client takes longer than the response of a local server.
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                head = f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
                writer.write(f"{head}Connection: close\r\n\r\n".encode())
                words = (await reader.readline()).split()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        return False
    return len(words) > 1 and words[0].startswith(b"HTTP/") and words[1][:1] in (b"2", b"3", b"4")
