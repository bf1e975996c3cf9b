"""Wait states of pending sessions (reasons, position, estimate), written when they change."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from bai_services.core.scheduling.caps import ScopeKind
from bai_services.core.scheduling.queue import Estimate, PendingSession, Reason
from bai_services.core.scheduling.queue.why import Explainer
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.scheduling.queue import QueueStore, WaitState

from ..events import POSITION, REASONS, Change
from ..sessions.lifecycle import Lifecycle
from .idle_scheduling import spare_time
from .queue_snapshot import QueueSnapshot

# Where more than one batch of sessions has only changed position, positions are written at this
# interval; the API reads them from memory, where they are current.
MOVED_SECONDS = 10.0

# Interval at which event streams receive changed positions.
TOLD_SECONDS = 1.0

News = list[tuple[PendingSession, WaitState]]


class _Compared(NamedTuple):
    """Current states, sessions whose state differs from the written one, and sessions no longer
    pending.
    """

    states: dict[str, WaitState]
    news: News
    gone: list[str]
    moved: dict[str, Change]


class WaitStates:
    """Knows the written state of each session, so that a pass only writes differences."""

    def __init__(self, store: QueueStore, lifecycle: Lifecycle) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._reasons: dict[str, tuple[Reason, ...]] = {}
        self._written: dict[str, WaitState] = {}
        self._current: dict[str, WaitState] = {}
        self._moved_at = -MOVED_SECONDS
        self._has_moved = False
        self._untold: dict[str, Change] = {}
        self._told_at = -TOLD_SECONDS

    def of(self, session_id: str) -> WaitState | None:
        """Return the current state of a session; None if the written one is current."""
        return self._current.get(session_id)

    def leave(self) -> None:
        """Discard all states: another manager holds the lease now."""
        self._current = {}

    def is_late(self) -> bool:
        """Return whether changed positions are due to be written."""
        return self._has_moved and time.monotonic() - self._moved_at >= MOVED_SECONDS

    def receive(self, reasons: Mapping[str, tuple[Reason, ...]]) -> None:
        """Take over changed reasons."""
        self._reasons.update(reasons)

    def forget(self, session_ids: Iterable[str]) -> None:
        """Forget sessions that have changed; if they are pending again, their whole state is
        written.
        """
        for session_id in session_ids:
            self._written.pop(session_id, None)
            self._current.pop(session_id, None)
            self._untold.pop(session_id, None)

    async def news(self, snapshot: QueueSnapshot) -> News:
        """Return the pending sessions whose state differs from the written one."""
        reasons, written = dict(self._reasons), dict(self._written)
        # Positions are only needed if an event stream is open.
        current = dict(self._current) if self._lifecycle.is_followed else {}
        found = await snapshot.ask(partial(_compare, reasons, written, current))
        for session_id in found.gone:
            # Unless it is pending again since, with other reasons.
            if self._reasons.get(session_id) is reasons.get(session_id):
                self._reasons.pop(session_id, None)
            if self._written.get(session_id) is written.get(session_id):
                self._written.pop(session_id, None)
        self._current = found.states
        self._untold.update(found.moved)
        self.tell_moved()
        return found.news

    def tell_moved(self) -> None:
        """Publish the changed positions of the last second to event streams."""
        now = time.monotonic()
        if self._untold and now - self._told_at >= TOLD_SECONDS:
            self._told_at = now
            untold, self._untold = self._untold, {}
            self._lifecycle.publish_moved(untold)

    async def write(self, news: News, token: int) -> None:
        """Write changed states, one batch at a time, and publish them.

        Raises
        ------
        StaleLease
            If another manager holds the lease by now.
        """
        due, size = self._due(news), self._store.batch
        for start in range(0, len(due), size):
            part = due[start : start + size]
            await spare_time()
            await self._store.write_states({w.id: state for w, state in part}, token)
            for waiting, state in part:
                before = self._written.get(waiting.id)
                self._written[waiting.id] = state
                if before is None or before.reasons != state.reasons:
                    self._lifecycle.publish(_change_of(waiting, REASONS))

    def _due(self, news: News) -> News:
        """Return the states to write now: all, except a long list of mere position changes."""
        now = time.monotonic()
        told = [(w, state) for w, state in news if not self._has_told(w.id, state)]
        is_many = len(news) - len(told) > self._store.batch
        self._has_moved = is_many and now - self._moved_at < MOVED_SECONDS
        if self._has_moved:
            return told
        if len(news) > self._store.batch:
            self._moved_at = now
        return news

    def _has_told(self, session_id: str, state: WaitState) -> bool:
        written = self._written.get(session_id)
        return written is not None and written.reasons == state.reasons


def _compare(
    reasons: Mapping[str, tuple[Reason, ...]],
    written: Mapping[str, WaitState],
    current: Mapping[str, WaitState],
    explainer: Explainer,
) -> _Compared:
    news: News = []
    moved: dict[str, Change] = {}
    states: dict[str, WaitState] = {}
    for waiting, position, estimate in _places(explainer):
        explainer.queue.give_way()
        state = states[waiting.id] = WaitState(reasons.get(waiting.id, ()), position, estimate)
        if written.get(waiting.id) != state:
            news.append((waiting, state))
        before = current.get(waiting.id, state)
        if before != state and before.reasons == state.reasons:
            moved[waiting.id] = _change_of(waiting, POSITION)
    gone = [key for key in {**reasons, **written} if key not in states]
    return _Compared(states, news, gone, moved)


def _places(explainer: Explainer) -> Iterator[tuple[PendingSession, int, dict[str, Any] | None]]:
    """Return every pending session's position and estimated start."""
    for group in explainer.queue.groups():
        estimates = explainer.estimates(group)
        for session_id, position in explainer.positions(group).items():
            waiting = explainer.queue.pending(session_id)
            if waiting is not None:
                yield waiting, position, _shown(estimates.get(session_id))


def _shown(estimate: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate rounded to the minute, otherwise it would change every second."""
    if estimate is None or estimate.starts_at is None:
        return None
    starts_at = estimate.starts_at.replace(second=0, microsecond=0)
    return {"starts_at": starts_at.isoformat(), "certainty": str(estimate.certainty)}


def _change_of(waiting: PendingSession, kind: str) -> Change:
    of_kind = {scope.kind: scope.id for scope in waiting.scopes}
    return Change(
        waiting.id,
        Status.PENDING,
        kind,
        of_kind[ScopeKind.USER],
        of_kind[ScopeKind.PROJECT],
        of_kind[ScopeKind.DOMAIN],
    )
