"""Preemptions with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class PlanOutcome(StrEnum):
    """How a plan ended. Victims that have not been stopped continue to run.

    ``started``: the session was started. ``dropped``: the plan no longer helped.
    """

    STARTED = "started"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedSession:
    """A victim of a plan; ``rule``: priority, job-priority or fair-share.

    ``stopped_at``: when the stop was requested; None: no stop was requested.
    """

    session_id: str
    session: str
    owner: str
    rule: str
    status: str
    stopped_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPreemption:
    """Sessions that are stopped so that the session ``session_id`` can start.

    ``session_id``, ``session``, ``owner`` and ``domain`` are empty if the caller may not see the
    session. Victims that the caller may not see are missing from ``victims``. ``outcome`` is empty
    until the plan ends.
    """

    id: str
    created_at: datetime
    session_id: str
    session: str
    owner: str
    domain: str
    resource_group: str
    mode: str
    grace_seconds: int
    stops_at: datetime
    ended_at: datetime | None
    outcome: str
    victims: Sequence[PreemptedSession]
    victim_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPreemption:
    """The announced preemption of a running session; ``mode``: reschedule or terminate.

    ``reason`` describes the rule in English; ``coded`` is the same text as a code with values.
    """

    stops_at: datetime
    mode: str
    reason: str
    coded: Mapping[str, Any]
