"""Why sessions end: a code that programs compare, and a text that users read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class EndReason(StrEnum):
    """Codes of the ends that the spawner reports, and of those that the manager decides."""

    EXITED = "exited"  # the main process ended by itself
    STOPPED = "stopped"  # the server was stopped through the Hub
    INTERRUPTED = "interrupted"  # ended from outside: out of memory, killed, removed
    KERNEL_ENDED = "kernel-ended"  # a kernel of a cluster session ended before the others
    START_FAILED = "start-failed"

    BATCH_TIMEOUT = "BATCH_TIMEOUT_EXCEEDED"
    LIFETIME = "SESSION_LIFETIME_EXCEEDED"
    PENDING_TIMEOUT = "PENDING_TIMEOUT_EXCEEDED"
    IDLE_TIMEOUT = "idle-timeout"
    DEPENDENCY_FAILED = "DEPENDENCY_FAILED"

    def explained(self, text: str) -> str:
        """Return the code with its explanation, as the status and the history of a session say."""
        return f"{self}: {text}"


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The end of a session as the spawner reports it: nothing of the session runs any more.

    ``exit_code`` is None where it is unknown, ``sub_logs`` are by hostname.
    """

    exit_code: int | None
    reason: EndReason = EndReason.EXITED
    text: str = ""
    log: str = ""
    sub_logs: Mapping[str, str] = field(default_factory=dict)
