"""End reasons of sessions: a code for programs, and a text for users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Exit code of a session's server after a failed bootstrap script.
BOOTSTRAP_FAILED_EXIT_CODE = 190


class EndReason(StrEnum):
    """Codes of end reasons: first codes from the spawner, then codes from the manager."""

    EXITED = "exited"  # the main process ended by itself
    STOPPED = "stopped"  # the server was stopped through the Hub
    INTERRUPTED = "interrupted"  # terminated from outside: out of memory, killed or removed
    KERNEL_ENDED = "kernel-ended"  # a kernel of a cluster session ended before the others
    START_FAILED = "start-failed"
    BOOTSTRAP_FAILED = "bootstrap-failed"  # a bootstrap script of the user or project failed

    BATCH_TIMEOUT = "BATCH_TIMEOUT_EXCEEDED"
    LIFETIME = "SESSION_LIFETIME_EXCEEDED"
    PENDING_TIMEOUT = "PENDING_TIMEOUT_EXCEEDED"
    IDLE_TIMEOUT = "idle-timeout"
    DEPENDENCY_FAILED = "DEPENDENCY_FAILED"


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The spawner's report that all kernels of a session have ended.

    ``exit_code`` is None if it is unknown. ``sub_logs`` maps the host names of sub kernels to logs.
    """

    exit_code: int | None
    reason: EndReason = EndReason.EXITED
    text: str = ""
    log: str = ""
    sub_logs: Mapping[str, str] = field(default_factory=dict)
