"""Snapshot of the queue, for explanations and estimates while passes continue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bai_services.core.scheduling.queue import GiveWay, Queue
from bai_services.core.scheduling.queue.why import Explainer

T = TypeVar("T")


class QueueSnapshot:
    """A fork of the queue; results computed for one question are reused for the next."""

    def __init__(self, origin: Queue, fork: Queue, asked: set[asyncio.Task[object]]) -> None:
        """``asked`` holds the running questions, so that shutdown can wait for them."""
        self._origin = origin
        self.queue = fork
        self._explainer = Explainer(fork)
        # Only one thread may use the fork at a time.
        self._in_use = asyncio.Lock()
        self._asked = asked

    @classmethod
    async def of(
        cls, queue: Queue, asked: set[asyncio.Task[object]], give_way: GiveWay
    ) -> QueueSnapshot:
        """Fork a queue, which must not change meanwhile; work on the fork calls ``give_way``."""
        fork = await asyncio.to_thread(queue.fork)
        fork.give_way = give_way
        return cls(queue, fork, asked)

    def is_of(self, queue: Queue) -> bool:
        """Return whether a queue is unchanged since this snapshot."""
        return self._origin is queue and self.queue.revision == queue.revision

    async def ask(self, question: Callable[[Explainer], T]) -> T:
        """Answer a question in a thread; if the caller is cancelled, the answer still completes."""
        task = asyncio.create_task(self._answer(question))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        return await asyncio.shield(task)

    async def _answer(self, question: Callable[[Explainer], T]) -> T:
        async with self._in_use:
            return await asyncio.to_thread(question, self._explainer)
