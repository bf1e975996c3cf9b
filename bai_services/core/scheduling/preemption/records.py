"""Preemptions with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class PlanOutcome(StrEnum):
    """How a plan ended; ``dropped``: it no longer helped, so the remaining victims continue."""

    STARTED = "started"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedSession:
    """``rule``: priority, job-priority or fair-share.

    ``stopped_at``: when its stop was requested; None: not yet, or it did not have to be stopped.
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

    ``session_id``, ``session``, ``owner`` and ``domain`` are empty, and victims are missing from
    ``victims``, if the caller may not see these sessions. ``outcome`` is empty until the end.
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

    ``reason`` is the rule in English, ``coded`` the same as a code with values.
    """

    stops_at: datetime
    mode: str
    reason: str
    coded: Mapping[str, Any]
