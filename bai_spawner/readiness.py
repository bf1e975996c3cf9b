"""Wait until a started server responds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from .engines.base import Exit

ENGINE_POLL_SECONDS = 2
ALIVE_STEP_SECONDS = 0.25


async def wait_for_answer(
    url: str,
    timeout_seconds: float,
    step_seconds: float,
    ended: Callable[[], Awaitable[Exit | None]],
) -> Exit | None:
    """Return None after any response below 500 to a GET of ``url``, or how the server ended.

    Raises
    ------
    TimeoutError
        If neither happens in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    next_engine_poll = loop.time() + ALIVE_STEP_SECONDS
    while True:
        if await _answers(url, min(ENGINE_POLL_SECONDS, max(0.1, deadline - loop.time()))):
            return None
        if loop.time() >= next_engine_poll:
            next_engine_poll = loop.time() + ALIVE_STEP_SECONDS
            if (how := await ended()) is not None:
                return how
        if loop.time() >= deadline:
            raise TimeoutError
        await asyncio.sleep(step_seconds)


async def _answers(url: str, timeout_seconds: float) -> bool:
    # A raw request: setting up an HTTP client costs more than a local server's response.
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
