"""Why each session waits, as a view: nothing is copied per session until it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .explain import held_reasons
from .group_queue import GroupQueue
from .model import Reason

if TYPE_CHECKING:
    from .run import Queue


class Reasons(Mapping[str, tuple[Reason, ...]]):
    """The reasons of all who wait in a queue, good until it changes."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def __getitem__(self, session_id: str) -> tuple[Reason, ...]:
        return self._queue.reasons_of(session_id)

    def __iter__(self) -> Iterator[str]:
        return self._queue.waiting_ids()

    def __len__(self) -> int:
        return self._queue.count_waiting()


def news_of(group_queue: GroupQueue) -> dict[str, tuple[Reason, ...]]:
    """Return the reasons that differ from those told before, and note that they are told."""
    found: dict[str, tuple[Reason, ...]] = {}
    for shape in group_queue.shapes.values():
        if shape.told is not shape.reasons:
            found.update((session_id, shape.reasons) for _, session_id in shape.members)
        else:
            for session_id in shape.fresh:
                if group_queue.shape_of.get(session_id) is shape:
                    found[session_id] = shape.reasons
        shape.told = shape.reasons
        shape.fresh = []
    for session_id in {**group_queue.told_reserved, **group_queue.reserved}:
        mine = group_queue.reasons_of(session_id)
        is_news = group_queue.told_reserved.get(session_id) != group_queue.reserved.get(session_id)
        if mine is not None and (is_news or session_id in found):
            found[session_id] = mine
    group_queue.told_reserved = group_queue.reserved
    for session_id in group_queue.untold:
        waiting = group_queue.held.get(session_id) or group_queue.deferred.get(session_id)
        if waiting is not None:
            found[session_id] = held_reasons(waiting)
    group_queue.untold = []
    return found
