"""Lifecycle of a session: statuses, events and legal transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ..coded_text import CodedText, TextTemplate
from ..errors import InvalidTransition

# User option of a Hub server that contains the id of its session.
SESSION_ID_OPTION = "bai_session_id"

# Longest extension of a lifetime in one request.
MAX_EXTENSION_SECONDS = 366 * 24 * 3600


class Status(StrEnum):
    # Saved and stopped, without resources; a resumed session is pending again.
    SUSPENDED = "SUSPENDED"
    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"
    ERROR = "ERROR"


class Event(StrEnum):
    PLACED = "placed"  # a scheduling pass allocated agent and devices
    DISPATCHED = "dispatched"  # the manager gives the work item to the agent
    PREPARED = "prepared"  # image and injection are ready; the Hub may start the server
    DISPLACED = "displaced"  # its agent was lost before the start: the session is pending again
    STARTED = "started"  # the session's server is ready
    STOP_REQUESTED = "stop-requested"
    PREEMPTED = "preempted"  # stopped so that another session can start
    # Its kernels on lost agents have stopped; its other kernels are being stopped.
    AGENT_LOST = "agent-lost"
    # All kernels of a session that was preempted, or that lost an agent, have ended; it is pending
    # again.
    REQUEUED = "requeued"
    EXITED = "exited"  # all of its kernels have ended
    FAILED = "failed"
    ABORTED = "aborted"  # all of its kernels have ended, after a stop before RUNNING
    SUSPEND_REQUESTED = "suspend-requested"  # the session stops, to be resumed later
    # All of its kernels have ended, or a resumed session could not start; its home is kept.
    SUSPENDED = "suspended"
    # A rule of its project moved the pending session to another resource group.
    MOVED = "moved"
    RESUMED = "resumed"  # a suspended session waits for resources again


class SessionType(StrEnum):
    INTERACTIVE = "interactive"
    BATCH = "batch"
    INFERENCE = "inference"
    SYSTEM = "system"


class Result(StrEnum):
    UNDEFINED = "undefined"
    SUCCESS = "success"
    FAILURE = "failure"


S, E = Status, Event

# Transitions that are not listed are illegal. Before PREPARED, no kernel can run, so a stop ends
# the session immediately.
TRANSITIONS: Mapping[tuple[Status, Event], Status] = {
    (S.PENDING, E.PLACED): S.SCHEDULED,
    (S.PENDING, E.MOVED): S.PENDING,
    (S.PENDING, E.STOP_REQUESTED): S.CANCELLED,
    (S.PENDING, E.FAILED): S.ERROR,
    (S.SCHEDULED, E.DISPATCHED): S.PREPARING,
    (S.SCHEDULED, E.DISPLACED): S.PENDING,
    (S.SCHEDULED, E.STOP_REQUESTED): S.CANCELLED,
    (S.SCHEDULED, E.FAILED): S.ERROR,
    (S.PREPARING, E.PREPARED): S.PREPARED,
    (S.PREPARING, E.DISPLACED): S.PENDING,
    (S.PREPARING, E.STOP_REQUESTED): S.CANCELLED,
    (S.PREPARING, E.FAILED): S.ERROR,
    (S.PREPARED, E.STARTED): S.RUNNING,
    (S.PREPARED, E.STOP_REQUESTED): S.TERMINATING,
    (S.PREPARED, E.EXITED): S.TERMINATED,
    (S.PREPARED, E.FAILED): S.ERROR,
    (S.PREPARED, E.ABORTED): S.CANCELLED,
    (S.RUNNING, E.STOP_REQUESTED): S.TERMINATING,
    (S.RUNNING, E.PREEMPTED): S.TERMINATING,
    (S.PREPARED, E.AGENT_LOST): S.TERMINATING,
    (S.RUNNING, E.AGENT_LOST): S.TERMINATING,
    (S.RUNNING, E.EXITED): S.TERMINATED,
    (S.RUNNING, E.FAILED): S.ERROR,
    (S.TERMINATING, E.REQUEUED): S.PENDING,
    (S.TERMINATING, E.EXITED): S.TERMINATED,
    (S.TERMINATING, E.FAILED): S.ERROR,
    (S.TERMINATING, E.ABORTED): S.CANCELLED,
    (S.RUNNING, E.SUSPEND_REQUESTED): S.TERMINATING,
    (S.TERMINATING, E.SUSPENDED): S.SUSPENDED,
    (S.PENDING, E.SUSPENDED): S.SUSPENDED,
    (S.SCHEDULED, E.SUSPENDED): S.SUSPENDED,
    (S.PREPARING, E.SUSPENDED): S.SUSPENDED,
    (S.PREPARED, E.SUSPENDED): S.SUSPENDED,
    (S.SUSPENDED, E.RESUMED): S.PENDING,
    (S.SUSPENDED, E.STOP_REQUESTED): S.TERMINATED,
}

ENDED = frozenset({Status.TERMINATED, Status.CANCELLED, Status.ERROR})
LIVE = frozenset(Status) - ENDED
# A session in one of these statuses has resources, and has not started.
STARTING = frozenset({Status.SCHEDULED, Status.PREPARING, Status.PREPARED})
# Statuses in which a session is charged to quotas: from its placement to its end.
OCCUPYING = LIVE - {Status.PENDING, Status.SUSPENDED}

# A session passes through the statuses in the order of ``Status`` and ends in one of the last
# statuses.
_POSITION = {status: position for position, status in enumerate(Status)}


def has_reached(status: Status, awaited: Status) -> bool:
    """Return whether ``status`` is ``awaited`` or later in the order of ``Status``."""
    return _POSITION[status] >= _POSITION[awaited]


def next_status(status: Status, event: Event) -> Status:
    """Return the status after ``event``.

    Raises
    ------
    InvalidTransition
        If the event is not valid in that status.
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise InvalidTransition(
            f"the event {event} is not valid for a session that is {status}",
            status=status,
            event=event,
        ) from None


def end_event(
    event: Event, status: Status, result: str, *, has_run: bool, is_requeued: bool = False
) -> Event:
    """Return the event for the end of a session: ``ABORTED`` after a stop before RUNNING,
    ``REQUEUED`` if a preempted session returns to the queue, else ``event``.

    After a failed start, a session has the result ``failure`` and is not aborted.
    """
    is_end = status is Status.TERMINATING and event in (Event.EXITED, Event.FAILED)
    if is_end and is_requeued:
        return Event.REQUEUED
    is_aborted = is_end and not has_run and result == Result.UNDEFINED
    return Event.ABORTED if is_aborted else event


def result_of(exit_code: int) -> Result:
    """Return the result of a command that exited with ``exit_code``."""
    return Result.SUCCESS if exit_code == 0 else Result.FAILURE


def command_end(exit_code: int) -> CodedText:
    """Return a text for users about the end of a command."""
    if exit_code > 128:
        return TextTemplate.COMMAND_KILLED.text(signal=exit_code - 128, code=exit_code)
    return TextTemplate.COMMAND_EXITED.text(code=exit_code)
