"""The life of a session: statuses, events and the one table of legal moves."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ..errors import InvalidTransition

# The option of a Hub server that names the session which the server runs.
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
    PLACED = "placed"  # a pass chose agent and devices, counters have moved
    DISPATCHED = "dispatched"  # the agent took the work
    PREPARED = "prepared"  # image there, injection made; the Hub may start it
    DISPLACED = "displaced"  # its agent was lost before anything was started: it waits again
    STARTED = "started"  # the spawner saw the server answer
    STOP_REQUESTED = "stop-requested"
    EXITED = "exited"  # the engine says that nothing of it runs any more
    FAILED = "failed"
    ABORTED = "aborted"  # stopped by request before it was RUNNING, and nothing of it runs any more


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

# A pair that is missing here is illegal: nothing is ignored silently.
# Before PREPARED nothing of the session can run, so a stop there ends it at once.
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
# Usage counts from the placement to the end.
OCCUPYING = LIVE - {Status.PENDING}


def next_status(status: Status, event: Event) -> Status:
    """Return the status after ``event``.

    Raises
    ------
    InvalidTransition
        If a session in that status cannot have that event.
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise InvalidTransition(
            f"a session that is {status} cannot be {event}", status=status, event=event
        ) from None


def end_event(event: Event, status: Status, result: str, *, has_run: bool) -> Event:
    """Return ``ABORTED`` for the end of a session whose start was cancelled, else ``event``.

    A start that failed has the result ``failure`` before it ends, and stays a failure.
    """
    is_end = status is Status.TERMINATING and event in (Event.EXITED, Event.FAILED)
    is_aborted = is_end and not has_run and result == Result.UNDEFINED
    return Event.ABORTED if is_aborted else event


def result_of(exit_code: int) -> Result:
    """Return the result of a command that ended by itself."""
    return Result.SUCCESS if exit_code == 0 else Result.FAILURE


def command_end(exit_code: int) -> str:
    """Return how a command ended, for people."""
    if exit_code > 128:
        return f"the command was ended by signal {exit_code - 128} (exit code {exit_code})"
    return f"the command ended with exit code {exit_code}"
