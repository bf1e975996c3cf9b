"""Background loop that runs a step at intervals and when woken, and survives errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from bai_services.core.errors import Unavailable

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0
# Time between two steps of a loop without work. The steps find work of which the loop was not
# notified.
REST_SECONDS = 30.0


class WorkSource(Protocol):
    """Whether there is work for the steps of a loop."""

    @property
    def exists(self) -> bool: ...

    def listen(self, on_work: Callable[[], None], /) -> None:
        """Call ``on_work`` again and again while there is work."""

    async def remove(self, on_work: Callable[[], None], /) -> None:
        """Stop calling ``on_work``."""


class Loop:
    """Runs ``step`` when woken, and ``tick_seconds`` after the end of the last step.

    With a source of work, the loop rests while there is none: its next step follows when it is
    woken, when there is work, or after ``rest_seconds``. It does not rest before it has run one
    step without work, which cleans up. A step can shorten the time until the next one. Steps never
    overlap. A failed step is repeated after a backoff.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[None]],
        tick_seconds: float,
        work: WorkSource | None = None,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        self._name = name
        self._step = step
        self._tick_seconds = tick_seconds
        self._work = work
        self._rest_seconds = rest_seconds
        self._is_resting = False
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
        if self._work is not None:
            self._work.listen(self._end_rest)
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Cancel the loop and wait for it."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if self._work is not None:
            await self._work.remove(self._end_rest)

    def _end_rest(self) -> None:
        if self._is_resting:
            self._woken.set()

    async def _run(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            is_woken = self._woken.is_set()
            self._woken.clear()
            self._wait_seconds = self._tick_seconds
            may_have_worked = is_woken or self._work is None or self._work.exists
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
            await self._pause(may_have_worked)

    async def _pause(self, may_have_worked: bool) -> None:
        """Wait until the next step."""
        has_asked = self._wait_seconds < self._tick_seconds
        if await self._is_woken_within(self._wait_seconds) or may_have_worked or has_asked:
            return
        if self._work is not None and not self._work.exists:
            self._is_resting = True
            try:
                await self._is_woken_within(self._rest_seconds - self._tick_seconds)
            finally:
                self._is_resting = False

    async def _is_woken_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._woken.wait()
        except TimeoutError:
            return False
