"""One query per second for the open work of many loops, so that loops without work can rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from bai_services.db.open_work import OpenWorkStore, Work

from .loop import Loop

POLL_SECONDS = 1.0


class OpenWork:
    """The open work of this manager's loops; polled while a loop uses it."""

    def __init__(self, store: OpenWorkStore) -> None:
        self._store = store
        self._listeners: dict[Work, set[Callable[[], None]]] = defaultdict(set)
        # None: unknown, so every loop must assume that it has work.
        self._found: frozenset[Work] | None = None
        self._loop = Loop("open work", self._poll, POLL_SECONDS)

    def of(self, work: Work) -> WorkOfLoop:
        return WorkOfLoop(self, work)

    def exists(self, work: Work) -> bool:
        """Return whether the last poll found work of this kind; True if that is unknown."""
        return self._found is None or work in self._found

    def listen(self, work: Work, on_work: Callable[[], None]) -> None:
        """Call ``on_work`` after each poll that finds work of this kind."""
        if not any(self._listeners.values()):
            self._loop.start()
        self._listeners[work].add(on_work)

    async def remove(self, work: Work, on_work: Callable[[], None]) -> None:
        self._listeners[work].discard(on_work)
        if not any(self._listeners.values()):
            await self._loop.stop()
            self._found = None

    async def _poll(self) -> None:
        try:
            self._found = await self._store.read()
        except Exception:
            self._found = None
            raise
        for work in self._found:
            for on_work in self._listeners[work]:
                on_work()


class WorkOfLoop:
    """Work of one kind, as `Loop` uses it."""

    def __init__(self, open_work: OpenWork, work: Work) -> None:
        self._open_work = open_work
        self._work = work

    @property
    def exists(self) -> bool:
        return self._open_work.exists(self._work)

    def listen(self, on_work: Callable[[], None]) -> None:
        self._open_work.listen(self._work, on_work)

    async def remove(self, on_work: Callable[[], None]) -> None:
        await self._open_work.remove(self._work, on_work)
