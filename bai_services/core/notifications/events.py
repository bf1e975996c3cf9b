"""Events to be delivered, and their audiences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..accounts.roles import Role
from ..coded_text import CodedText, TextTemplate
from ..scheduling.reservation_states import ReservationState
from .catalogue import EventName

MAX_KEY_CHARS = 160
# Time after which events are removed, together with their notifications and deliveries.
KEPT_FOR = timedelta(days=30)
# Maximum number of notifications of a user in the web UI; the oldest ones are removed.
MAX_NOTIFICATIONS_PER_USER = 500


@dataclass(frozen=True, slots=True)
class Audience:
    """The users who receive an event. Without a field, every active user receives it.

    Only ``domain`` and ``role`` can be combined. ``role``: the active users with this role.
    ``domain`` and ``role``: the users of the domain with this role, and the superadmins in the
    domain.
    """

    user_id: str | None = None
    domain: str | None = None
    project_id: str | None = None
    role: str | None = None


EVERYONE = Audience()
ADMINISTRATORS = Audience(role="superadmin")


@dataclass(frozen=True, slots=True)
class Event:
    """An event to be delivered.

    ``key`` makes events idempotent: a second event with the same key is ignored. Code that is
    repeated after a crash therefore raises the event only once. ``text`` must contain no secret.
    ``link`` is a path below the web UI, such as ``sessions/ID``. ``domain`` is the domain to which
    the event belongs, for webhooks of a domain; None: the installation.
    """

    key: str
    at: datetime
    name: EventName
    audience: Audience
    text: CodedText
    link: str = ""
    domain: str | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.key) <= MAX_KEY_CHARS:
            raise ValueError(f"the key {self.key!r} must have 1 to {MAX_KEY_CHARS} characters")


def folder_shared(
    invitation_id: str, at: datetime, invitee_id: str, domain: str, **values: str
) -> Event:
    """Return the event for an invitation to a folder.

    ``values``: ``name`` of the folder, ``user`` who shares it, and ``permission``.
    """
    text = TextTemplate.NOTICE_FOLDER_SHARED.text(**values)
    audience = Audience(user_id=invitee_id)
    key = f"invitation:{invitation_id}"
    return Event(key, at, EventName.FOLDER_SHARED, audience, text, "data", domain)


def session_preempted(
    session_id: str, at: datetime, owner_id: str, domain: str, name: str, reason: CodedText
) -> Event:
    """Return the event for the preemption of a session at ``at``."""
    text = TextTemplate.NOTICE_SESSION_PREEMPTED.text(reason, name=name)
    audience = Audience(user_id=owner_id)
    key = f"preempted:{session_id}@{at.isoformat(timespec='milliseconds')}"
    link = f"sessions/{session_id}"
    return Event(key, at, EventName.SESSION_PREEMPTED, audience, text, link, domain)


def session_continues(
    session_id: str, at: datetime, owner_id: str, domain: str, name: str
) -> Event:
    """Return the event for the cancellation, at ``at``, of an announced preemption."""
    text = TextTemplate.NOTICE_SESSION_CONTINUES.text(name=name)
    audience = Audience(user_id=owner_id)
    key = f"preemption-cancelled:{session_id}@{at.isoformat(timespec='milliseconds')}"
    link = f"sessions/{session_id}"
    return Event(key, at, EventName.SESSION_CONTINUES, audience, text, link, domain)


def run_ended(
    run_id: str, at: datetime, owner_id: str, domain: str, pipeline: str, *, has_succeeded: bool
) -> Event:
    """Return the event for the end of a pipeline run at ``at``; a resumed run can end again."""
    if has_succeeded:
        name, template = EventName.RUN_SUCCEEDED, TextTemplate.NOTICE_RUN_SUCCEEDED
    else:
        name, template = EventName.RUN_FAILED, TextTemplate.NOTICE_RUN_FAILED
    return _of_run(run_id, at, owner_id, domain, name, template.text(name=pipeline))


def approval_requested(
    run_id: str, at: datetime, owner_id: str, domain: str, pipeline: str, task: str
) -> Event:
    """Return the event for a task of a pipeline run that waits for an approval since ``at``."""
    text = TextTemplate.NOTICE_APPROVAL.text(name=pipeline, task=task)
    return _of_run(run_id, at, owner_id, domain, EventName.APPROVAL_REQUESTED, text, f":{task}")


def _of_run(
    run_id: str,
    at: datetime,
    owner_id: str,
    domain: str,
    name: EventName,
    text: CodedText,
    task: str = "",
) -> Event:
    audience = Audience(user_id=owner_id)
    key = f"{name}:{run_id}{task}@{at.isoformat(timespec='milliseconds')}"
    return Event(key, at, name, audience, text, f"pipelines?run={run_id}", domain)


def rollout_failed(
    revision_id: str,
    at: datetime,
    owner_id: str,
    domain: str,
    endpoint_id: str,
    endpoint: str,
    reason: CodedText,
) -> Event:
    """Return the event for a new revision of an endpoint whose rollout was abandoned."""
    text = TextTemplate.NOTICE_ROLLOUT_FAILED.text(reason, name=endpoint)
    audience = Audience(user_id=owner_id)
    key = f"rollout:{revision_id}@{at.isoformat(timespec='milliseconds')}"
    link = f"endpoints?item={endpoint_id}"
    return Event(key, at, EventName.ENDPOINT_FAILED, audience, text, link, domain)


def session_stops(
    session_id: str,
    at: datetime,
    owner_id: str,
    domain: str,
    name: str,
    reason: CodedText,
    *,
    stops_at: datetime,
    is_requeued: bool,
) -> Event:
    """Return the warning, raised at ``at``, that a session will be preempted at ``stops_at``."""
    template = TextTemplate.NOTICE_SESSION_STOPS
    if is_requeued:
        template = TextTemplate.NOTICE_SESSION_STOPS_REQUEUED
    text = template.text(reason, name=name, ends_at=stops_at.isoformat(timespec="seconds"))
    audience = Audience(user_id=owner_id)
    key = f"preemption-warning:{session_id}@{at.isoformat(timespec='milliseconds')}"
    link = f"sessions/{session_id}"
    return Event(key, at, EventName.SESSION_STOPS_NOW, audience, text, link, domain)


def budget_warning(
    project_id: str,
    at: datetime,
    domain: str,
    name: str,
    period: str,
    percent: int,
    *,
    spent_percent: int,
    is_blocked: bool = False,
    stops_at: datetime | None = None,
) -> Event:
    """Return the event for a project that has reached ``percent`` of its budget for a period.

    ``period`` identifies the period; each percentage is reported once per period.
    ``spent_percent``: the spent part of the budget. ``is_blocked``: new sessions do not start.
    ``stops_at``: when running sessions stop; None: they continue.
    """
    if stops_at is not None:
        text = TextTemplate.NOTICE_BUDGET_STOPS.text(
            name=name, percent=spent_percent, ends_at=stops_at.isoformat(timespec="seconds")
        )
    else:
        template = TextTemplate.NOTICE_BUDGET_BLOCKS if is_blocked else TextTemplate.NOTICE_BUDGET
        text = template.text(name=name, percent=spent_percent)
    audience = Audience(project_id=project_id)
    key = f"budget:{project_id}:{period}:{percent}"
    return Event(key, at, EventName.BUDGET_WARNING, audience, text, "statistics", domain)


def reservation_requested(
    reservation_id: str, at: datetime, domain: str, starts_at: datetime, **values: str
) -> Event:
    """Return the event for a reservation that needs an approval.

    ``values``: ``name`` of the reservation, ``project``, and ``user`` who requests it.
    """
    text = TextTemplate.NOTICE_RESERVATION_REQUESTED.text(starts_at=starts_at.isoformat(), **values)
    audience = Audience(domain=domain, role=Role.ADMIN)
    key = f"reservation:{reservation_id}:requested"
    return Event(key, at, EventName.RESERVATION_REQUESTED, audience, text, "reservations", domain)


_DECISIONS: Mapping[ReservationState, TextTemplate] = {
    ReservationState.APPROVED: TextTemplate.NOTICE_RESERVATION_APPROVED,
    ReservationState.REJECTED: TextTemplate.NOTICE_RESERVATION_REJECTED,
    ReservationState.CANCELLED: TextTemplate.NOTICE_RESERVATION_CANCELLED,
    ReservationState.EXPIRED: TextTemplate.NOTICE_RESERVATION_EXPIRED,
}


def reservation_decided(
    reservation_id: str,
    at: datetime,
    author_id: str,
    domain: str,
    state: ReservationState,
    starts_at: datetime,
    **values: str,
) -> Event:
    """Return the event for a reservation that was approved, rejected, cancelled, or has expired.

    ``values``: ``name`` of the reservation, and ``user`` who has decided (no value after an
    expiry).
    """
    text = _DECISIONS[state].text(starts_at=starts_at.isoformat(), **values)
    audience = Audience(user_id=author_id)
    key = f"reservation:{reservation_id}:{state}"
    return Event(key, at, EventName.RESERVATION_DECIDED, audience, text, "reservations", domain)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as stored; ``id`` is also in the payloads of webhooks."""

    id: str
    created_at: datetime
    name: str
    text: dict[str, Any]
    link: str
    domain: str | None
    user_id: str | None
    project_id: str | None
    audience_domain: str | None
    role: str | None
