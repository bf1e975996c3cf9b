"""Reasons of all pending sessions as a lazy view: computed per session on access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from .explain import blocked_reasons
from .group_queue import GroupQueue
from .model import Reason


class PendingSessions(Protocol):
    """The pending sessions of a queue with their reasons; implemented by ``Queue``."""

    def reasons_of(self, session_id: str) -> tuple[Reason, ...]: ...

    def pending_ids(self) -> Iterator[str]: ...

    def count_pending(self) -> int: ...


class Reasons(Mapping[str, tuple[Reason, ...]]):
    """The reasons of all pending sessions of a queue, valid until the queue changes."""

    def __init__(self, queue: PendingSessions) -> None:
        self._queue = queue

    def __getitem__(self, session_id: str) -> tuple[Reason, ...]:
        return self._queue.reasons_of(session_id)

    def __iter__(self) -> Iterator[str]:
        return self._queue.pending_ids()

    def __len__(self) -> int:
        return self._queue.count_pending()


def unreported_reasons(group_queue: GroupQueue) -> dict[str, tuple[Reason, ...]]:
    """Return the reasons that were not reported before, and mark them as reported."""
    unreported: dict[str, tuple[Reason, ...]] = {}
    for shape in group_queue.shapes.values():
        if shape.reported is not shape.reasons:
            unreported.update((session_id, shape.reasons) for _, session_id in shape.members)
        else:
            for session_id in shape.fresh:
                if group_queue.shape_of.get(session_id) is shape:
                    unreported[session_id] = shape.reasons
        shape.reported = shape.reasons
        shape.fresh = []
    for session_id in {**group_queue.reported_reserved, **group_queue.reserved}:
        reasons = group_queue.reasons_of(session_id)
        has_changed = group_queue.reported_reserved.get(session_id) != group_queue.reserved.get(
            session_id
        )
        if reasons is not None and (has_changed or session_id in unreported):
            unreported[session_id] = reasons
    group_queue.reported_reserved = group_queue.reserved
    for session_id in group_queue.unreported:
        pending = group_queue.blocked.get(session_id) or group_queue.deferred.get(session_id)
        if pending is not None:
            unreported[session_id] = blocked_reasons(pending)
    group_queue.unreported = []
    return unreported
