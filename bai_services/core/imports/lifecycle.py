"""Lifecycle of imports: of models into model stores, and of other sources into folders."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

from ..coded_text import refusal
from ..errors import InvalidTransition
from ..refusal_texts import RefusalText

# Time for which ended imports are shown.
IMPORTS_KEPT_FOR = timedelta(days=30)
# Separate limits for imports of models and for imports into folders.
MAX_OPEN_IMPORTS_PER_USER = 20


class ImportStatus(StrEnum):
    REQUESTED = "requested"  # waits for the approval of an administrator
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ImportEvent(StrEnum):
    APPROVED = "approved"
    BEGUN = "begun"
    COMPLETED = "completed"
    BROKEN = "broken"
    RETRIED = "retried"
    RESUBMITTED = "resubmitted"  # a retry that needs another approval
    CANCELLED = "cancelled"


S, E = ImportStatus, ImportEvent

# Transitions that are not listed are illegal.
TRANSITIONS: Mapping[tuple[ImportStatus, ImportEvent], ImportStatus] = {
    (S.REQUESTED, E.APPROVED): S.QUEUED,
    (S.QUEUED, E.BEGUN): S.RUNNING,
    (S.RUNNING, E.BEGUN): S.RUNNING,  # repeated after a restart of the manager
    (S.RUNNING, E.COMPLETED): S.DONE,
    (S.QUEUED, E.BROKEN): S.FAILED,
    (S.RUNNING, E.BROKEN): S.FAILED,
    # A cancelled import cannot be repeated: an administrator may have rejected it.
    (S.FAILED, E.RETRIED): S.QUEUED,
    (S.FAILED, E.RESUBMITTED): S.REQUESTED,
    (S.REQUESTED, E.CANCELLED): S.CANCELLED,
    (S.QUEUED, E.CANCELLED): S.CANCELLED,
    (S.RUNNING, E.CANCELLED): S.CANCELLED,
}
ENDED: frozenset[ImportStatus] = frozenset({S.DONE, S.FAILED, S.CANCELLED})


def next_status(status: ImportStatus, event: ImportEvent) -> ImportStatus:
    """Return the status after ``event``.

    Raises
    ------
    InvalidTransition
        If the event is not valid in that status.
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        problem = refusal(RefusalText.IMPORT_TRANSITION, import_status=status, event=event)
        raise InvalidTransition(problem, status=status, event=event) from None


def valid_statuses(event: ImportEvent) -> frozenset[ImportStatus]:
    """Return the statuses in which ``event`` is valid."""
    return frozenset(status for status, known in TRANSITIONS if known is event)
