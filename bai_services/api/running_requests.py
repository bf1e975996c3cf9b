"""The requests in progress, which get a response when the manager stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Time for cancelled requests to send their responses.
CANCELLED_SECONDS = 2.0


class RunningRequests:
    """Ends all requests when the manager stops.

    Otherwise, the end of the event loop would cancel long polls and streams after their connections
    are closed, and each of them would be logged as a failure.
    """

    def __init__(self) -> None:
        self.is_ending = False
        self._tasks: dict[asyncio.Task[Any], Callable[[], bool]] = {}

    @contextmanager
    def entered(self, is_long: Callable[[], bool]) -> Iterator[None]:
        """Register the current task as a request in progress during the context. ``is_long``
        returns whether the request is a long poll or a stream.
        """
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = is_long
        try:
            yield
        finally:
            del self._tasks[task]

    async def end(self, seconds: float) -> None:
        """Cancel long polls and streams, and wait for the other requests.

        Requests that take longer than ``seconds`` are cancelled, too.
        """
        self.is_ending = True
        cancelled = [task for task, is_long in self._tasks.items() if is_long()]
        for task in cancelled:
            task.cancel()
        if others := self._tasks.keys() - set(cancelled):
            _, late = await asyncio.wait(others, timeout=seconds)
            for task in late:
                task.cancel()
        if left := set(self._tasks):
            await asyncio.wait(left, timeout=CANCELLED_SECONDS)
