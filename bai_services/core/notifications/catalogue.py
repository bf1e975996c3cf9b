"""Events about which users and administrators are notified, and the channels of delivery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Channel(StrEnum):
    """A channel; ``webhook`` and ``slack``: the user's webhooks of kind ``json`` or ``slack``."""

    WEB = "web"
    MAIL = "mail"
    WEBHOOK = "webhook"
    SLACK = "slack"


class EventName(StrEnum):
    SESSION_RUNNING = "session-running"
    SESSION_FAILED = "session-failed"
    SESSION_ENDED = "session-ended"
    SESSION_PENDING_LONG = "session-pending-long"
    # The two stages of the warning before an idle timeout or a maximum run time ends a session.
    SESSION_STOPS_SOON = "session-stops-soon"
    SESSION_STOPS_NOW = "session-stops-now"
    SESSION_PREEMPTED = "session-preempted"
    SESSION_CONTINUES = "session-continues"
    SESSION_REQUEUED = "session-requeued"
    # A session that was preempted is running again.
    SESSION_RUNS_AGAIN = "session-runs-again"
    RUN_SUCCEEDED = "run-succeeded"
    RUN_FAILED = "run-failed"
    APPROVAL_REQUESTED = "approval-requested"
    ENDPOINT_FAILED = "endpoint-failed"
    FOLDER_SHARED = "folder-shared"
    QUOTA_NEARLY_FULL = "quota-nearly-full"
    BUDGET_WARNING = "budget-warning"
    ANNOUNCEMENT = "announcement"
    MAINTENANCE_PLANNED = "maintenance-planned"
    # For the author of a reservation.
    RESERVATION_DECIDED = "reservation-decided"
    # For domain admins.
    RESERVATION_REQUESTED = "reservation-requested"
    # For superadmins.
    AGENT_LOST = "agent-lost"
    DISK_FULL = "disk-full"
    STORAGE_HOST_UNREACHABLE = "storage-host-unreachable"
    MAIL_FAILING = "mail-failing"


@dataclass(frozen=True, slots=True)
class EventType:
    """A kind of event. ``defaults``: the channels for users who have not chosen channels.

    ``is_urgent``: quiet hours and digests do not delay the event. ``is_for_administrators``: only
    superadmins receive the event. ``is_for_domain_admins``: only domain admins, and the superadmins
    in the domain, receive it.
    """

    name: EventName
    defaults: frozenset[Channel]
    is_urgent: bool = False
    is_for_administrators: bool = False
    is_for_domain_admins: bool = False


_WEB = frozenset({Channel.WEB})
_MAIL = frozenset({Channel.WEB, Channel.MAIL})
N = EventName

EVENTS: Mapping[EventName, EventType] = {
    event.name: event
    for event in (
        EventType(N.SESSION_RUNNING, _WEB),
        EventType(N.SESSION_FAILED, _WEB),
        EventType(N.SESSION_ENDED, _WEB),
        EventType(N.SESSION_PENDING_LONG, _WEB),
        EventType(N.SESSION_STOPS_SOON, _MAIL),
        EventType(N.SESSION_STOPS_NOW, _MAIL, is_urgent=True),
        EventType(N.SESSION_PREEMPTED, _MAIL, is_urgent=True),
        EventType(N.SESSION_CONTINUES, _MAIL, is_urgent=True),
        EventType(N.SESSION_REQUEUED, _MAIL),
        EventType(N.SESSION_RUNS_AGAIN, _MAIL),
        EventType(N.RUN_SUCCEEDED, _WEB),
        EventType(N.RUN_FAILED, _WEB),
        EventType(N.APPROVAL_REQUESTED, _WEB),
        EventType(N.ENDPOINT_FAILED, _MAIL),
        EventType(N.FOLDER_SHARED, _WEB),
        EventType(N.QUOTA_NEARLY_FULL, _MAIL),
        EventType(N.BUDGET_WARNING, _MAIL),
        EventType(N.ANNOUNCEMENT, _WEB),
        EventType(N.MAINTENANCE_PLANNED, _WEB),
        EventType(N.RESERVATION_DECIDED, _MAIL),
        EventType(N.RESERVATION_REQUESTED, _MAIL, is_for_domain_admins=True),
        EventType(N.AGENT_LOST, _MAIL, is_urgent=True, is_for_administrators=True),
        EventType(N.DISK_FULL, _MAIL, is_urgent=True, is_for_administrators=True),
        EventType(N.STORAGE_HOST_UNREACHABLE, _MAIL, is_urgent=True, is_for_administrators=True),
        # Not by mail, because mail delivery fails.
        EventType(N.MAIL_FAILING, _WEB, is_for_administrators=True),
    )
}
