"""Background loop that runs a step at intervals and when woken, and survives errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bai_services.core.errors import Unavailable

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0


class Loop:
    """Runs ``step`` when woken, and ``tick_seconds`` after the end of the last step.

    A step can shorten the time until the next one. Steps never overlap. A failed step is repeated
    after a backoff.
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[None]], tick_seconds: float) -> None:
        self._name = name
        self._step = step
        self._tick_seconds = tick_seconds
        self._wait_seconds = tick_seconds
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Run the next step now or, if the last step failed, when the backoff ends.

        May be called often, and before ``start``.
        """
        self._woken.set()

    def run_within(self, seconds: float) -> None:
        """During a step: run the next step at most ``seconds`` after the end of this one."""
        self._wait_seconds = min(self._wait_seconds, max(seconds, 0.0))

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Cancel the loop and wait for it."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _run(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            self._woken.clear()
            self._wait_seconds = self._tick_seconds
            try:
                await self._step()
                backoff = FIRST_BACKOFF_SECONDS
            except Exception as error:
                # Log only the message of ``Unavailable``. Any other error is a defect, so log its
                # traceback.
                trace = None if isinstance(error, Unavailable) else error
                log.error(
                    "%s failed: %s; next try in %g s", self._name, error, backoff, exc_info=trace
                )
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
                continue
            try:
                async with asyncio.timeout(self._wait_seconds):
                    await self._woken.wait()
            except TimeoutError:
                pass
