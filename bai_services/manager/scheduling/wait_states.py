"""Write and publish the wait states (reasons, position, estimate) of pending sessions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from bai_services.core.scheduling.caps import ScopeKind
from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.queue import Estimate, PendingSession, Reason
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.scheduling.queue import QueueStore, WaitState

from ..events import POSITION, REASONS, Change
from ..sessions.lifecycle import Lifecycle
from .idle_scheduling import wait_until_idle
from .queue_snapshot import QueueSnapshot

# Minimum interval between writes of positions if more than one batch of positions has changed. The
# API reads current positions from memory.
WRITE_INTERVAL_SECONDS = 10.0

# Interval at which event streams receive changed positions.
PUBLISH_INTERVAL_SECONDS = 1.0

ChangedStates = list[tuple[PendingSession, WaitState]]


class _Comparison(NamedTuple):
    """Current wait states and their differences from the stored ones.

    ``removed``: sessions that are no longer pending. ``positions``: position changes to publish.
    """

    states: dict[str, WaitState]
    changed: ChangedStates
    removed: list[str]
    positions: dict[str, Change]


class WaitStates:
    """Caches the written state of each session, so that only differences are written."""

    def __init__(self, store: QueueStore, lifecycle: Lifecycle) -> None:
        self.store = store
        self._lifecycle = lifecycle
        self._reasons: dict[str, tuple[Reason, ...]] = {}
        self._written: dict[str, WaitState] = {}
        self._current: dict[str, WaitState] = {}
        self._written_at = -WRITE_INTERVAL_SECONDS
        self._has_unwritten_positions = False
        self._unpublished: dict[str, Change] = {}
        self._published_at = -PUBLISH_INTERVAL_SECONDS

    def of(self, session_id: str) -> WaitState | None:
        """Return the current state of a session; None if it is not in memory."""
        return self._current.get(session_id)

    def counts(self) -> Counter[str]:
        """Return the number of pending sessions by the first check that they did not pass.

        Empty if another manager holds the lease.
        """
        return Counter(
            state.reasons[0]["check"] if state.reasons else ""
            for state in [*self._current.values()]
        )

    def clear(self) -> None:
        """Discard the current states, because another manager holds the lease."""
        self._current = {}

    def is_due(self) -> bool:
        """Return whether changed positions are due to be written."""
        return (
            self._has_unwritten_positions
            and time.monotonic() - self._written_at >= WRITE_INTERVAL_SECONDS
        )

    def update_reasons(self, reasons: Mapping[str, tuple[Reason, ...]]) -> None:
        """Store the reasons that a pass has changed."""
        self._reasons.update(reasons)

    def discard(self, session_ids: Iterable[str]) -> None:
        """Discard the states of sessions whose status has changed."""
        for session_id in session_ids:
            self._written.pop(session_id, None)
            self._current.pop(session_id, None)
            self._unpublished.pop(session_id, None)

    async def changed(self, snapshot: QueueSnapshot) -> ChangedStates:
        """Return the pending sessions whose state differs from the written one."""
        reasons, written = dict(self._reasons), dict(self._written)
        # Changed positions are only published if an event stream is open.
        current = dict(self._current) if self._lifecycle.is_followed else {}
        compared = await snapshot.query(partial(_compare, reasons, written, current))
        for session_id in compared.removed:
            # A session may have become pending again during the query; keep its entries.
            if self._reasons.get(session_id) is reasons.get(session_id):
                self._reasons.pop(session_id, None)
            if self._written.get(session_id) is written.get(session_id):
                self._written.pop(session_id, None)
        self._current = compared.states
        self._unpublished.update(compared.positions)
        self.publish_positions()
        return compared.changed

    def publish_positions(self) -> None:
        """Publish changed positions, at most once per ``PUBLISH_INTERVAL_SECONDS``."""
        now = time.monotonic()
        if self._unpublished and now - self._published_at >= PUBLISH_INTERVAL_SECONDS:
            self._published_at = now
            changes, self._unpublished = self._unpublished, {}
            self._lifecycle.publish_positions(changes)

    async def write(self, changed: ChangedStates, token: int) -> None:
        """Write changed states, one batch at a time, and publish changed reasons.

        Raises
        ------
        StaleLease
            If another manager holds the lease now.
        """
        due, size = self._select_due(changed), self.store.batch
        for start in range(0, len(due), size):
            part = due[start : start + size]
            await wait_until_idle()
            await self.store.write_states({w.id: state for w, state in part}, token)
            for session, state in part:
                before = self._written.get(session.id)
                self._written[session.id] = state
                if before is None or before.reasons != state.reasons:
                    self._lifecycle.publish(_change_of(session, REASONS))

    def _select_due(self, changed: ChangedStates) -> ChangedStates:
        """Return the states to write now.

        If there is more than one batch of states with unchanged reasons, these states are written
        at most once per ``WRITE_INTERVAL_SECONDS``.
        """
        now = time.monotonic()
        with_new_reasons = [
            (w, state) for w, state in changed if self._has_new_reasons(w.id, state)
        ]
        has_many_positions = len(changed) - len(with_new_reasons) > self.store.batch
        self._has_unwritten_positions = (
            has_many_positions and now - self._written_at < WRITE_INTERVAL_SECONDS
        )
        if self._has_unwritten_positions:
            return with_new_reasons
        if len(changed) > self.store.batch:
            self._written_at = now
        return changed

    def _has_new_reasons(self, session_id: str, state: WaitState) -> bool:
        written = self._written.get(session_id)
        return written is None or written.reasons != state.reasons


def _compare(
    reasons: Mapping[str, tuple[Reason, ...]],
    written: Mapping[str, WaitState],
    current: Mapping[str, WaitState],
    explainer: Explainer,
) -> _Comparison:
    changed: ChangedStates = []
    positions: dict[str, Change] = {}
    states: dict[str, WaitState] = {}
    for session, position, estimate in _positions(explainer):
        explainer.queue.pause_if_busy()
        state = states[session.id] = WaitState(reasons.get(session.id, ()), position, estimate)
        if written.get(session.id) != state:
            changed.append((session, state))
        before = current.get(session.id, state)
        if before != state and before.reasons == state.reasons:
            positions[session.id] = _change_of(session, POSITION)
    removed = [key for key in {**reasons, **written} if key not in states]
    return _Comparison(states, changed, removed, positions)


def _positions(explainer: Explainer) -> Iterator[tuple[PendingSession, int, dict[str, Any] | None]]:
    """Yield every pending session with its position and estimated start."""
    for group in explainer.queue.groups():
        estimates = explainer.estimates(group)
        for session_id, position in explainer.positions(group).items():
            session = explainer.queue.pending(session_id)
            if session is not None:
                yield session, position, _stored(estimates.get(session_id))


def _stored(estimate: Estimate | None) -> dict[str, Any] | None:
    shown = None if estimate is None else estimate.announced()
    if shown is None or shown.starts_at is None:
        return None
    return {"starts_at": shown.starts_at.isoformat(), "certainty": str(shown.certainty)}


def _change_of(session: PendingSession, kind: str) -> Change:
    scope_ids = {scope.kind: scope.id for scope in session.scopes}
    return Change(
        session.id,
        Status.PENDING,
        kind,
        scope_ids[ScopeKind.USER],
        scope_ids[ScopeKind.PROJECT],
        scope_ids[ScopeKind.DOMAIN],
    )
