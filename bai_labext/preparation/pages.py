"""The open JupyterLab pages of the session: they save their documents on request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

MAX_PAGES = 50
MAX_ENTRIES = 50
MAX_CHARACTERS = 300


@dataclass(slots=True)
class Pages:
    """Pages that acknowledged the current save request, and the documents of these pages."""

    saving: set[str] = field(default_factory=set)
    saved: dict[str, None] = field(default_factory=dict)
    unsaved: dict[str, None] = field(default_factory=dict)
    count: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, page: str) -> None:
        """Record that a page has received the notice and saves its documents."""
        if len(self.saving) < MAX_PAGES and page not in self.saving:
            self.saving.add(page)
            self.count += 1
        self._changed.set()

    def finish(self, page: str, saved: Any, unsaved: Any) -> None:
        """Record what a page has saved, and what it could not save (with reasons)."""
        if page not in self.saving:
            self.begin(page)
        self.saving.discard(page)
        self.saved |= dict.fromkeys(_texts(saved))
        self.unsaved |= dict.fromkeys(_texts(unsaved))
        self._changed.set()

    async def wait(self, answer_seconds: float, seconds: float) -> None:
        """Wait until every page that has answered has finished.

        ``answer_seconds`` limits the wait for the first answer, and ``seconds`` the whole wait. A
        page that answers only after the others have finished is not awaited.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            self._changed.clear()
            if self.count and not self.saving:
                return
            limit = seconds if self.count else min(answer_seconds, seconds)
            left = start + limit - loop.time()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue


def _texts(entries: Any) -> list[str]:
    if not isinstance(entries, list):
        return []
    return [str(entry)[:MAX_CHARACTERS] for entry in entries[:MAX_ENTRIES]]
