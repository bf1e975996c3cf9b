"""Overflow: pending sessions of a project move to another resource group.

A rule of a project names the resource group of the pending sessions, another resource group, and
the minimum wait. A session moves only to a resource group in which it starts at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..sessions.lifecycle import SessionType
from .other_groups import in_group, would_start
from .queue.model import Changes, PendingSession
from .queue.run import Queue

MAX_RULES = 20  # maximum number of rules of a project
MAX_POSITION = 100
DEFAULT_AFTER_SECONDS = 300
MAX_AFTER_SECONDS = 30 * 24 * 3600
# Replicas of endpoints stay in the resource group of their revision.
MOVABLE_TYPES = frozenset({SessionType.INTERACTIVE, SessionType.BATCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowRule:
    """A rule with the fields of the REST API.

    ``position``: the rules of a project are tried in ascending order of position. Rules with the
    same position are tried in ascending order of the session's costs in their resource groups.
    ``after_seconds``: minimum wait in ``from_group``. ``changed_by_role``: role of the user who
    created or last changed the rule.
    """

    id: str
    created_at: datetime
    version: int
    project_id: str
    project: str
    domain: str
    from_group: str
    to_group: str
    position: int
    after_seconds: int
    changed_by_role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowTarget:
    """A resource group to which a session may move, and the earliest time of the move.

    ``moves_at`` is None if the session does not exist yet.
    """

    resource_group: str
    after_seconds: int
    moves_at: datetime | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pending session, and the resource groups to which it may move now, in order."""

    session_id: str
    groups: Sequence[str]


@dataclass(frozen=True, slots=True)
class Move:
    session_id: str
    from_group: str
    to_group: str


def targets(
    rules: Iterable[OverflowRule],
    groups: Iterable[str],
    costs: Mapping[str, float | None],
    waits_since: datetime | None,
) -> list[OverflowTarget]:
    """Return the targets of a session in the order in which they are tried.

    ``rules``: the rules of the session's project and resource group. ``groups``: the resource
    groups that its owner may use. ``costs``: cost per hour by resource group; 0 if no price is
    known.
    """
    allowed = set(groups)
    ordered = sorted(
        (rule for rule in rules if rule.to_group in allowed),
        key=lambda rule: (rule.position, costs.get(rule.to_group) or 0.0, rule.to_group),
    )
    return [
        OverflowTarget(
            resource_group=rule.to_group,
            after_seconds=rule.after_seconds,
            moves_at=None
            if waits_since is None
            else waits_since + timedelta(seconds=rule.after_seconds),
        )
        for rule in ordered
    ]


def find_moves(
    queue: Queue, candidates: Sequence[Candidate], limits: Changes, now: datetime
) -> list[Move]:
    """Return the moves after which each moved session starts in the next pass.

    The moves are tried one after the other on a copy of the queue, so that two sessions do not move
    to the same free capacity. ``queue`` is not changed. ``limits``: caps and usage of the targets.
    They are needed because the queue has none for a resource group without sessions.
    """
    copy = queue.fork_to_run()
    copy.apply(limits)
    moves = []
    for candidate in candidates:
        pending = copy.pending(candidate.session_id)
        if pending is None:
            continue
        group = _first_start(copy, pending, candidate.groups, now)
        if group is not None:
            moves.append(Move(pending.id, pending.request.resource_group, group))
    return moves


def _first_start(
    queue: Queue, pending: PendingSession, groups: Sequence[str], now: datetime
) -> str | None:
    """Move a session to the first resource group in which it starts; return that group."""
    known = set(queue.groups())
    for group in groups:
        moved = in_group(pending, group)
        # This check costs less than a pass and excludes most groups.
        if group not in known or not would_start(queue, moved):
            continue
        queue.apply(Changes(pending=(moved,)))
        if any(d.session_id == pending.id for d in queue.run(now, explains=False).decisions):
            return group
        queue.apply(Changes(pending=(pending,)))
    return None
