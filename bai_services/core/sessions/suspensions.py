"""Suspension of sessions: save the state, stop, free the resources and resume later.

Before the stop, the session *prepares*: its server extension saves open pages, runs the user's
hook, and saves variables. The manager stops the session when it receives the preparation report, or
at the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from ..errors import InvalidRequest
from .lifecycle import Status

DEFAULT_SECONDS = 60
MAX_SECONDS = 600
MAX_SUSPENDED_PER_USER = 20
# Maximum size of a preparation report, which the session writes.
MAX_REPORT_ENTRIES = 50
MAX_REPORT_CHARACTERS = 500


class Purpose(StrEnum):
    """What happens to a session when its preparation ends."""

    SUSPEND = "suspend"  # stop, and wait until the user resumes the session
    REQUEUE = "requeue"  # stop, and return to the queue immediately
    STOP = "stop"  # the code that requested the preparation stops the session


class Phase(StrEnum):
    PREPARING = "preparing"
    STOPPING = "stopping"
    SUSPENDED = "suspended"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True)
class PreparationReport:
    """The documents and variables that a session saved, or could not save, before its stop.

    An entry is a name, with a reason if the object was not saved. ``hook_exit_code`` is None if
    there is no hook, or if the hook did not end in time.
    """

    saved_documents: tuple[str, ...] = ()
    unsaved_documents: tuple[str, ...] = ()
    saved_variables: tuple[str, ...] = ()
    unsaved_variables: tuple[str, ...] = ()
    pages: int = 0
    has_hook: bool = False
    hook_exit_code: int | None = None
    hook_message: str = ""


@dataclass(frozen=True, slots=True)
class Suspension:
    """The latest suspension of a session, or its latest preparation for a requeue or a stop."""

    session_id: str
    phase: Phase
    purpose: Purpose
    requested_at: datetime
    requested_by: str
    deadline: datetime
    keeps_variables: bool
    suspended_at: datetime | None
    # When a suspended session ends, and its home is deleted.
    expires_at: datetime | None
    resumed_at: datetime | None
    report: PreparationReport | None


@dataclass(frozen=True, slots=True)
class StopNotice:
    """The manager's message to a session that must prepare for a stop."""

    purpose: Purpose
    requested_by: str
    deadline: datetime
    seconds_left: float
    keeps_variables: bool


@dataclass(frozen=True, slots=True)
class PendingNotice:
    """Response to a session; ``notice`` is None if it does not have to prepare for a stop."""

    notice: StopNotice | None


def check_seconds(seconds: int) -> int:
    """Return the time for the preparation; raise ``InvalidRequest`` if it is not valid."""
    if not 0 <= seconds <= MAX_SECONDS:
        raise InvalidRequest(
            f"seconds must be from 0 to {MAX_SECONDS}, not {seconds}", field="seconds"
        )
    return seconds


def is_stop_due(deadline: datetime, is_reported: bool, now: datetime) -> bool:
    """Return whether to stop a preparing session: after its report, or after the deadline."""
    return is_reported or now >= deadline


def keeps_home(before: Status, after: Status) -> bool:
    """Return whether the session's home stays on its agent after a transition.

    The home stays if the kernels have ended and the session will run again.
    """
    return before is Status.TERMINATING and after in (Status.SUSPENDED, Status.PENDING)


def report_from_json(content: Mapping[str, Any]) -> PreparationReport:
    """Return the report that a session sent, truncated to the limits.

    No value is trusted, because the user controls the session.
    """
    code = _whole(content.get("hook_exit_code"), -255, 255)
    return PreparationReport(
        saved_documents=_texts(content.get("saved_documents")),
        unsaved_documents=_texts(content.get("unsaved_documents")),
        saved_variables=_texts(content.get("saved_variables")),
        unsaved_variables=_texts(content.get("unsaved_variables")),
        pages=_whole(content.get("pages"), 0, 1000) or 0,
        has_hook=content.get("has_hook") is True,
        hook_exit_code=code,
        hook_message=str(content.get("hook_message") or "")[:MAX_REPORT_CHARACTERS],
    )


def _texts(entries: Any) -> tuple[str, ...]:
    if not isinstance(entries, list | tuple):
        return ()
    return tuple(str(entry)[:MAX_REPORT_CHARACTERS] for entry in entries[:MAX_REPORT_ENTRIES])


def _whole(value: Any, lowest: int, highest: int) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and lowest <= value <= highest else None
