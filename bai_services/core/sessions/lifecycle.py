"""Lifecycle of a session: statuses, events and the table of legal transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ..errors import InvalidTransition

# The option of a Hub server that contains the id of its session.
HUB_OPTION = "bai_session_id"


class Status(StrEnum):
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
    PLACED = "placed"  # a pass chose agent and devices, counters are updated
    DISPATCHED = "dispatched"  # the agent accepted the work
    PREPARED = "prepared"  # image and injection are ready; the Hub may start it
    DISPLACED = "displaced"  # its agent was lost before anything was started: it is pending again
    STARTED = "started"  # the spawner got a response from the server
    STOP_REQUESTED = "stop-requested"
    EXITED = "exited"  # the engine reports that nothing of it runs any more
    FAILED = "failed"
    ABORTED = "aborted"  # stopped by request before RUNNING, and nothing of it runs any more


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

# A pair that is missing here is illegal and raises an error. Before PREPARED nothing of the session
# can run, so a stop ends it at once.
TRANSITIONS: Mapping[tuple[Status, Event], Status] = {
    (S.PENDING, E.PLACED): S.SCHEDULED,
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
    (S.RUNNING, E.EXITED): S.TERMINATED,
    (S.RUNNING, E.FAILED): S.ERROR,
    (S.TERMINATING, E.EXITED): S.TERMINATED,
    (S.TERMINATING, E.FAILED): S.ERROR,
    (S.TERMINATING, E.ABORTED): S.CANCELLED,
}

ENDED = frozenset({Status.TERMINATED, Status.CANCELLED, Status.ERROR})
LIVE = frozenset(Status) - ENDED
# It counts against quotas from the placement to the end.
OCCUPYING = LIVE - {Status.PENDING}


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
            f"a session that is {status} cannot be {event}", status=status, event=event
        ) from None


def end_event(event: Event, status: Status, result: str, *, has_run: bool) -> Event:
    """Return ``ABORTED`` for the end of a session whose start was cancelled, else ``event``.

    A failed start has the result ``failure`` before it ends, and remains a failure.
    """
    is_end = status is Status.TERMINATING and event in (Event.EXITED, Event.FAILED)
    is_aborted = is_end and not has_run and result == Result.UNDEFINED
    return Event.ABORTED if is_aborted else event


def result_of(exit_code: int) -> Result:
    """Return the result of a command that ended by itself."""
    return Result.SUCCESS if exit_code == 0 else Result.FAILURE


def command_end(exit_code: int) -> str:
    """Return how a command ended as text for users."""
    if exit_code > 128:
        return f"the command was ended by signal {exit_code - 128} (exit code {exit_code})"
    return f"the command ended with exit code {exit_code}"
