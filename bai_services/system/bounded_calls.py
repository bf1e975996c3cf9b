"""Run blocking calls concurrently until a deadline, and abandon those that hang."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedCalls(Generic[T]):
    """Runs named calls in daemon threads, so that a hanging call does not delay the exit.

    A hanging call keeps its thread. The call is not started again before it ends, so the number of
    threads is at most the number of names.
    """

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._lock = threading.Lock()

    def run(
        self, calls: Mapping[str, Callable[[], T]], timeout_seconds: float
    ) -> dict[str, T | Exception]:
        """Return the result or the exception of each call that ends in time; blocking."""
        deadline = time.monotonic() + timeout_seconds
        done: queue.SimpleQueue[tuple[str, T | Exception]] = queue.SimpleQueue()
        with self._lock:
            started = [name for name in calls if name not in self._running]
            self._running.update(started)
        for name in started:
            arguments = (name, calls[name], done)
            threading.Thread(target=self._run_one, args=arguments, daemon=True).start()
        results: dict[str, T | Exception] = {}
        while len(results) < len(started):
            try:
                name, result = done.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            results[name] = result
        return results

    def _run_one(
        self,
        name: str,
        call: Callable[[], T],
        done: queue.SimpleQueue[tuple[str, T | Exception]],
    ) -> None:
        result: T | Exception
        try:
            result = call()
        except Exception as error:
            result = error
        with self._lock:
            self._running.discard(name)
        done.put((name, result))
