"""Estimates and explanations of a session's start, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..coded_text import CodedText
from ..resources import ResourceSlots
from ..scheduling.overflow import OverflowTarget
from .records import SessionMount


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEstimate:
    starts_at: datetime | None
    certainty: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    kind: str
    message: str
    coded: CodedText
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartExplanation:
    """The estimated start of a session, and the results of the scheduler's checks.

    ``position``: position in the queue. ``ahead``: number of sessions before it. ``sooner``:
    changes that would let the session start earlier. ``overflow``: the resource groups to which
    rules of the project may move the session. ``is_complete``: false if no explanation could be
    computed.
    """

    is_complete: bool
    position: int | None
    ahead: int | None
    checks: Sequence[Mapping[str, Any]]
    estimate: StartEstimate
    sooner: Sequence[Remedy]
    overflow: Sequence[OverflowTarget] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExplanation(StartExplanation):
    """Explanation of a pending session.

    If the explanation is not complete, ``checks`` are the last stored reasons.
    """

    session_id: str
    name: str
    status: str
    resource_group: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """A problem of one field of a request.

    ``field``: path of the field, such as ``mounts.0.path``; may be empty.
    """

    field: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedSession:
    """A session as it would be created, including defaults.

    ``requested``: resources of each kernel. ``total``: resources of all kernels together.
    """

    name: str
    type: str
    project: str
    resource_group: str
    image: str
    architecture: str
    priority: int
    requested: ResourceSlots
    total: ResourceSlots
    shared_memory: str
    cluster_size: int
    cluster_mode: str
    mounts: Sequence[SessionMount]
    starts_at: datetime | None
    batch_timeout: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapUse:
    """Usage of a limit that applies to the session.

    ``asked``: amount that the session requests. ``used``, ``left``, ``used_percent``: usage of the
    limit without the session. ``total_percent``: usage with the session. Percentages are rounded
    down, and 100 if the limit is 0. ``is_exceeded``: the session would exceed the limit;
    ``total_percent`` can be 100 in both cases. ``scope_text``: the scope as in ``message``.
    """

    scope: str
    scope_id: str
    slot: str
    asked: str
    limit: str
    used: str
    left: str
    used_percent: int
    total_percent: int
    is_exceeded: bool
    message: str
    coded: CodedText
    scope_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPreview(StartExplanation):
    """Preview of a session request, which creates nothing.

    ``problems``: reasons why the session cannot be created; with problems, the other fields are
    empty. ``existing_session``: id of the live session that the request would return instead of
    creating one. ``is_complete``: false if the start time could not be computed. ``cost_per_hour``:
    cost of the session in ``currency``; None if no slot has a price. ``budget_left``: remaining
    budget of the project; None if the project has no budget.
    """

    problems: Sequence[FieldProblem]
    existing_session: str | None
    session: PreviewedSession | None
    notices: Sequence[str]
    starts_now: bool
    caps: Sequence[CapUse]
    cost_per_hour: float | None
    currency: str
    budget_left: float | None
