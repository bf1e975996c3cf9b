"""Snapshot of the queue for explanations and estimates, independent of running passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.queue import PauseIfBusy, Queue

T = TypeVar("T")


class QueueSnapshot:
    """A fork of the queue; later queries reuse the results of earlier ones."""

    def __init__(self, origin: Queue, fork: Queue, query_tasks: set[asyncio.Task[object]]) -> None:
        """Running queries are added to ``query_tasks``, so that shutdown can wait for them."""
        self._origin = origin
        self.queue = fork
        self._explainer = Explainer(fork)
        # Only one thread may use the fork at a time.
        self._in_use = asyncio.Lock()
        self._query_tasks = query_tasks

    @classmethod
    async def of(
        cls, queue: Queue, query_tasks: set[asyncio.Task[object]], pause_if_busy: PauseIfBusy
    ) -> QueueSnapshot:
        """Fork a queue, which must not change during the call. Queries call ``pause_if_busy``."""
        fork = await asyncio.to_thread(queue.fork)
        fork.pause_if_busy = pause_if_busy
        return cls(queue, fork, query_tasks)

    def is_of(self, queue: Queue) -> bool:
        """Return whether this snapshot is of ``queue`` and up to date."""
        return self._origin is queue and self.queue.revision == queue.revision

    async def query(self, query: Callable[[Explainer], T]) -> T:
        """Run a query in a thread; it completes even if the caller is cancelled."""
        task = asyncio.create_task(self._run(query))
        self._query_tasks.add(task)
        task.add_done_callback(self._query_tasks.discard)
        return await asyncio.shield(task)

    async def _run(self, query: Callable[[Explainer], T]) -> T:
        async with self._in_use:
            return await asyncio.to_thread(query, self._explainer)
