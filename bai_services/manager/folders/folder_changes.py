"""Notify the users of a folder about its changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.rows import VfolderRow

from ..context import ManagerContext
from ..events import FILES, FOLDER, Change

log = logging.getLogger(__name__)

# File changes within this time cause one event, because uploading a directory changes many files.
COALESCE_SECONDS = 0.5


class FolderChanges:
    """Publishes events to all users of a folder: owner, grantees and members of its project.

    Administrators who may see the folder also receive them.
    """

    def __init__(self, context: ManagerContext) -> None:
        self._store = GrantStore(context.database)
        self._events = context.events
        self._listeners: list[Callable[[VfolderRow], None]] = []
        self._changed: dict[str, VfolderRow] = {}
        self._task: asyncio.Task[None] | None = None

    def listen(self, listener: Callable[[VfolderRow], None]) -> None:
        """Call ``listener`` after each change of a folder or its files; it must not block."""
        self._listeners.append(listener)

    async def stop(self) -> None:
        """Discard the events that have not been sent yet."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def folder_changed(self, row: VfolderRow) -> None:
        """Notify about a change of the folder itself: its name, permissions or status."""
        for listener in self._listeners:
            listener(row)
        await self._publish(row, FOLDER)

    def folder_withdrawn(self, user_ids: Collection[str]) -> None:
        """Notify users who have lost access to a folder."""
        for user_id in user_ids:
            self._events.publish_to_user(user_id, FOLDER)

    def files_changed(self, row: VfolderRow) -> None:
        """Notify about changed files; changes within ``COALESCE_SECONDS`` cause one event."""
        for listener in self._listeners:
            listener(row)
        if not self._events.is_followed:
            return
        self._changed[row.id] = row
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._publish_files(), name="changed folders")

    async def _publish_files(self) -> None:
        while self._changed:
            await asyncio.sleep(COALESCE_SECONDS)
            changed, self._changed = self._changed, {}
            for row in changed.values():
                try:
                    await self._publish(row, FILES)
                except Exception:
                    # Ignore the error: clients refresh at the next change.
                    log.exception("the users of folder %s cannot be notified", row.id)

    async def _publish(self, row: VfolderRow, kind: str) -> None:
        if self._events.is_followed:
            change = Change(
                "", None, kind, row.owner_id or "", row.project_id or "", row.domain, row.id
            )
            self._events.publish_to_users(await self._store.users_of(row.id), change)
