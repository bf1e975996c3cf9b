"""Responses that explain or preview when a session starts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..fields import CodedText, ResponseModel, SlotsOutput
from .responses import Check, Mount


class StartEstimate(ResponseModel):
    starts_at: datetime | None
    certainty: str


class Remedy(ResponseModel):
    kind: str
    message: str
    coded: CodedText
    facts: dict[str, Any]


class OverflowTarget(ResponseModel):
    """A resource group to which the session may move by a rule of its project.

    ``after_seconds``: minimum wait before the move. ``moves_at``: earliest time of the move; null
    if the session does not exist yet.
    """

    resource_group: str
    after_seconds: int
    moves_at: datetime | None


class Explanation(ResponseModel):
    """``position``: position in the queue. ``ahead``: number of sessions before this session.

    ``sooner``: changes that would let the session start earlier. ``overflow``: the resource groups
    to which the session may move, in order. ``is_complete``: false if no explanation could be
    computed.
    """

    is_complete: bool
    position: int | None
    ahead: int | None
    checks: list[Check]
    estimate: StartEstimate
    sooner: list[Remedy]
    overflow: list[OverflowTarget]


class PendingExplanation(Explanation):
    """If ``is_complete`` is false, ``checks`` contains the last stored reasons."""

    session_id: str
    name: str
    status: str
    resource_group: str
    priority: int


class FieldProblem(ResponseModel):
    """``field``: path of the field in the request, such as ``mounts.0.path``; may be empty."""

    field: str
    problem: str


class PreviewedSession(ResponseModel):
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
    requested: SlotsOutput
    total: SlotsOutput
    shared_memory: str
    cluster_size: int
    cluster_mode: str
    mounts: list[Mount]
    starts_at: datetime | None
    batch_timeout: int | None


class CapUse(ResponseModel):
    """A cap that applies to the session.

    ``asked``: amount that the session requests. ``used`` and ``left``: used and free amounts before
    the session is created. ``used_percent``: used percentage of the limit before the session is
    created. ``total_percent``: used percentage with the session. Both are rounded down, and 100 if
    the limit is 0. ``is_exceeded``: whether the session would exceed the limit; ``total_percent``
    does not show this, because it can be 100 even if the limit is exceeded. ``scope_text``: the
    scope as in ``message``.
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


class SessionPreview(Explanation):
    """Result of a session request without creating the session.

    ``problems``: why the session cannot be created; if there are any, the other fields are empty.
    ``existing_session``: id of the live session that the request would return instead of creating
    one. ``is_complete``: false if the start could not be computed. ``cost_per_hour``: cost of the
    session in ``currency``; null if no slot has a price. ``budget_left``: remaining budget
    of the project; null if the project has no budget.
    """

    problems: list[FieldProblem]
    existing_session: str | None
    session: PreviewedSession | None
    notices: list[str]
    starts_now: bool
    caps: list[CapUse]
    cost_per_hour: float | None
    currency: str
    budget_left: float | None
