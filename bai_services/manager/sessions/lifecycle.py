"""Change the status of sessions in the database, then notify all listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bai_services.core.coded_text import CodedText
from bai_services.core.errors import InvalidTransition
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.transitions import Move, Transition, TransitionValues

from ..clock import Clock
from ..events import Change, Events
from . import session_spans

log = logging.getLogger(__name__)

STATUS = "status"
# The progress of a preparation or the status text has changed.
PROGRESS = "progress"

Listener = Callable[[SessionRow], None]


class Lifecycle:
    """Changes the status of sessions; notifies background loops, long polls and event streams."""

    def __init__(self, store: SessionStore, events: Events, clock: Clock) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with the session at each notification of kind STATUS; see ``notify``.

        The listener must not block or raise.
        """
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    async def apply(
        self,
        session_id: str,
        event: Event,
        reason: str | CodedText = "",
        *,
        expected: Status | None = None,
        **facts: Any,
    ) -> SessionRow:
        """Apply an event to a session and return the session.

        ``facts`` are fields of TransitionValues. If ``expected`` is given, the session must have
        that status.

        Raises
        ------
        NotFound
            If the session does not exist.
        InvalidTransition
            If the current status does not allow the event, or is not ``expected``.
        """
        moved = await self._store.move(
            session_id, event, self._clock(), TransitionValues(reason=reason, **facts), expected
        )
        self.announce(moved, reason)
        return moved.row

    async def apply_all(self, moves: Sequence[Move]) -> dict[str, SessionRow]:
        """Apply one event to each of several sessions; return the changed ones by id.

        Sessions whose current status does not allow the event are skipped.
        """
        reasons = {move.session_id: move.facts.reason for move in moves}
        changed: dict[str, SessionRow] = {}
        for moved in await self._store.move_all(moves, self._clock()):
            self.announce(moved, reasons[moved.row.id])
            changed[moved.row.id] = moved.row
        return changed

    async def try_apply(
        self, session_id: str, event: Event, reason: str | CodedText = "", **facts: Any
    ) -> SessionRow | None:
        """Like ``apply``, but return None if the current status does not allow the event."""
        try:
            return await self.apply(session_id, event, reason, **facts)
        except InvalidTransition:
            return None

    def announce(self, moved: Transition, reason: str | CodedText = "") -> None:
        """Log a written transition, and notify all listeners."""
        self._log(moved, reason)
        session_spans.record_start(moved)
        self.notify(moved.row)

    def publish(self, change: Change) -> None:
        """Notify event streams and long polls, but not the background loops, of a change."""
        self._events.publish(change)

    @property
    def is_followed(self) -> bool:
        """Whether any event stream receives queue positions; if not, do not publish positions."""
        return self._events.is_followed

    def publish_positions(self, changes: Mapping[str, Change]) -> None:
        """Send new queue positions to event streams; long polls and loops do not need them."""
        self._events.publish_positions(changes)

    def notify(self, row: SessionRow, kind: str = STATUS) -> None:
        """Notify event streams and long polls of a change, and the listeners if ``kind`` is STATUS.

        STATUS is also used for a creation and for some other changes, such as a change of the
        priority.
        """
        self._events.publish(change_of(row, kind))
        if kind == STATUS:
            for listener in self._listeners:
                listener(row)

    def _log(self, moved: Transition, reason: str | CodedText) -> None:
        log.info(
            "session %s (%s of %s): %s -> %s by %s%s",
            moved.row.id,
            moved.row.name,
            moved.row.owner,
            moved.before,
            moved.row.status,
            moved.event,
            f": {reason}" if reason else "",
        )


def change_of(row: SessionRow, kind: str) -> Change:
    return Change(row.id, row.status, kind, row.owner_id, row.project_id, row.domain)
