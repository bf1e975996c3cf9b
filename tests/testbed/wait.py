"""Poll until a condition is met or a timeout elapses; use this instead of a fixed sleep."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

# The pauses grow, because each check takes CPU time away from the tested processes.
FIRST_PAUSE_SECONDS = 0.02
MAX_PAUSE_SECONDS = 0.25
PAUSE_GROWTH = 1.4


def wait_until(condition: Callable[[], T], timeout_seconds: float, what: str) -> T:
    """Return the first true value of ``condition``.

    Raises
    ------
    TimeoutError
        If the condition is not met in time; the message names ``what``.
    """
    deadline = time.monotonic() + timeout_seconds
    pause = FIRST_PAUSE_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds:g} s for {what}")
        time.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, MAX_PAUSE_SECONDS)
    return value


async def wait_until_async(
    condition: Callable[[], Any | Awaitable[Any]], timeout_seconds: float, what: str
) -> Any:
    """Poll like `wait_until`, without blocking the event loop; ``condition`` may be async.

    Raises
    ------
    TimeoutError
        If the condition is not met in time; the message names ``what``.
    """
    deadline = time.monotonic() + timeout_seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds:g} s for {what}")
        await asyncio.sleep(pause)
        pause = min(pause * PAUSE_GROWTH, MAX_PAUSE_SECONDS)
