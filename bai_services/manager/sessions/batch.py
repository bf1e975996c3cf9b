"""Batch sessions and replicas: container command, single execution, and exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import Conflict
from bai_services.core.sessions.kernel_group import MAIN
from bai_services.core.sessions.lifecycle import SessionType, Status
from bai_services.db.sessions.kernels import KernelState
from bai_services.db.sessions.rows import SessionKernels, SessionRow

# Command of the container of a batch session: instead of a Jupyter server, it runs a module that
# responds to the Hub and runs the session's command. With isolated mode (-I), Python cannot import
# modules in the home folder instead of library modules.
RUNNER = ("python3", "-I", "-m", "bai_labext.batch")
_WITH_COMMAND = (SessionType.BATCH, SessionType.INFERENCE)
# Command of the container of a replica: it runs the server and forwards the gateway's requests.
REPLICA_RUNNER = ("python3", "-I", "-m", "bai_labext.replica")


def command_of(row: SessionRow) -> list[str] | None:
    """Return the command of a session's container; None means the image's default command."""
    if row.type == SessionType.INFERENCE:
        return list(REPLICA_RUNNER)
    return list(RUNNER) if row.type == SessionType.BATCH else None


def check_first_launch(view: SessionKernels) -> None:
    """Raise if a launch would run the command of a batch session a second time.

    Raises
    ------
    Conflict
        If the batch session is already running.
    """
    row = view.row
    if row.type == SessionType.BATCH and row.status is Status.RUNNING:
        raise Conflict(
            f"session {row.name} is already running its command; a batch session runs it only once",
            session_id=row.id,
            status=row.status,
        )


def command_exit(state: KernelState, kernel: Mapping[str, Any] | None) -> int | None:
    """Return the exit code of the command of a batch session or replica, from its agent's report.

    Return None if the session has another type or is not running, if its command has not ended, if
    the code is unknown, or if the report is not about the current container of the main kernel.
    """
    if state.session_type not in _WITH_COMMAND or state.status is not Status.RUNNING:
        return None
    if state.role != MAIN:
        return None  # the command belongs to the main kernel
    if kernel is None or kernel.get("is_running", True):
        return None
    reported = kernel.get("container_id")
    if reported and state.container_id and reported != state.container_id:
        return None  # the container of an earlier start attempt
    code = kernel.get("exit_code")
    return None if code is None else int(code)


def memory_end(kernel: Mapping[str, Any] | None) -> CodedText | None:
    """Return the reason if a kernel has failed because it exceeded its memory."""
    if kernel is None or not kernel.get("is_out_of_memory") or kernel.get("exit_code") == 0:
        return None
    return TextTemplate.OUT_OF_MEMORY.text()
