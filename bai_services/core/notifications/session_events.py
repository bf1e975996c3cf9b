"""Events of a session: which changes of its status are reported to its owner."""

from __future__ import annotations

from ..coded_text import CodedText, TextTemplate
from ..sessions.lifecycle import Event, Result, Status
from .catalogue import EventName

# Reported as ended, not as failed, although the result of these sessions is a failure.
_LIMITS = frozenset(
    template.code
    for template in (
        TextTemplate.IDLE_TIMEOUT,
        TextTemplate.IDLE_UTILIZATION,
        TextTemplate.IDLE_NETWORK,
        TextTemplate.IDLE_LIFETIME,
        TextTemplate.LIFETIME,
        TextTemplate.LIFETIME_EXTENDED,
    )
)
# Only these cancellations are reported: all others were requested by a user.
_CANCELLED_BY_MANAGER = frozenset(
    template.code
    for template in (
        TextTemplate.PENDING_TIMEOUT,
        TextTemplate.DEPENDENCY_FAILED,
        TextTemplate.DEPENDENCY_STOPPED,
        TextTemplate.DEPENDENCY_ENDED,
    )
)
# A change to one of these statuses can be reported.
REPORTED = (Status.RUNNING, Status.TERMINATED, Status.CANCELLED, Status.ERROR)
# A change by one of these events, to any status, can also be reported.
REPORTED_EVENTS = (Event.AGENT_LOST,)
# Events after which a session may run again.
STOPS = (Event.PREEMPTED, Event.AGENT_LOST, Event.SUSPEND_REQUESTED)

_TEXTS = {
    EventName.SESSION_RUNNING: TextTemplate.NOTICE_SESSION_RUNNING,
    EventName.SESSION_FAILED: TextTemplate.NOTICE_SESSION_FAILED,
    EventName.SESSION_ENDED: TextTemplate.NOTICE_SESSION_ENDED,
}


def event_of(
    session: str,
    owner: str,
    event: str,
    status: str,
    result: str,
    reason: CodedText | None,
    stopped_by: str | None = None,
) -> tuple[EventName, CodedText] | None:
    """Return the event for a change to ``status`` by ``event`` of the lifecycle, and its text; None
    if the change is not reported.

    ``stopped_by`` is the latest of the ``STOPS`` before the change. The end of a session is not
    reported if the owner requested it.
    """
    code = "" if reason is None else reason.code
    match status:
        # A session that has lost too many agents fails instead.
        case Status.TERMINATING if event == Event.AGENT_LOST and result != Result.FAILURE:
            text = TextTemplate.NOTICE_SESSION_REQUEUED.text(name=session)
            return EventName.SESSION_REQUEUED, text
        case Status.RUNNING if stopped_by == Event.PREEMPTED:
            text = TextTemplate.NOTICE_SESSION_RUNS_AGAIN.text(name=session)
            return EventName.SESSION_RUNS_AGAIN, text
        case Status.RUNNING:
            return EventName.SESSION_RUNNING, _TEXTS[EventName.SESSION_RUNNING].text(name=session)
        case Status.ERROR:
            name = EventName.SESSION_FAILED
        case Status.CANCELLED if code in _CANCELLED_BY_MANAGER:
            name = EventName.SESSION_FAILED
        case Status.TERMINATED if not _is_own_request(reason, owner):
            has_failed = result == Result.FAILURE and code not in _LIMITS
            name = EventName.SESSION_FAILED if has_failed else EventName.SESSION_ENDED
        case _:
            return None
    return name, _TEXTS[name].text(reason or TextTemplate.ENDED.text(), name=session)


def _is_own_request(reason: CodedText | None, owner: str) -> bool:
    if reason is None:
        return False
    if reason.code == TextTemplate.STOPPED_BY.code:
        return reason.values.get("name") == owner
    return reason.code == TextTemplate.STOPPED_THROUGH_HUB.code
