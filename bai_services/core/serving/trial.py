"""Explain why a trial replica of a definition does not become healthy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..coded_text import CodedText, TextTemplate
from ..sessions.lifecycle import ENDED, Status
from .definition import HealthCheck

# Time for which the session of a trial may be pending before the trial fails.
MAX_PENDING_SECONDS = 600
# Time limit from scheduling until the main process runs, including the pull of the image.
MAX_START_SECONDS = 1200
MAX_END_SECONDS = 60
MAX_LOG_LINES = 20
MAX_LOG_CHARS = 4096
# Exit codes by the convention of shells.
_NOT_EXECUTABLE, _NOT_FOUND, _KILLED = 126, 127, 137
# The module in the last line of a traceback: `No module named 'vllm.entrypoints'`.
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '?(\w{1,80})")
# Python without a traceback: `/usr/bin/python3: No module named vllm`.
_NO_MAIN_MODULE = re.compile(r"python[\d.]*: No module named (\w{1,80})")
_GPU_MEMORY = ("cuda out of memory", "torch.outofmemoryerror", "hip out of memory")
# Parts of messages of container engines about images that cannot be pulled.
_PULL = ("pull", "manifest", "no such image", "not found: image", "is not on the machine")


class Answer(StrEnum):
    """Result of a health check. ``refused``: no program listens on the port. ``unreachable``: the
    replica cannot be reached. The last four values are for gRPC.
    """

    STATUS = "status"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    NO_HTTP = "no-http"
    SERVING = "serving"
    NOT_SERVING = "not-serving"
    NO_SERVICE = "no-service"
    NO_GRPC = "no-grpc"


_GRPC = {
    Answer.NOT_SERVING: TextTemplate.TRIAL_NOT_SERVING,
    Answer.NO_GRPC: TextTemplate.TRIAL_NO_GRPC,
}


@dataclass(frozen=True, slots=True)
class Check:
    """A health check. ``status``: HTTP status of the response. ``listening``: other ports on which
    the processes of the replica listen.
    """

    answer: Answer
    status: int = 0
    listening: Sequence[int] = ()

    def is_healthy(self, health: HealthCheck) -> bool:
        if self.answer is Answer.STATUS:
            return self.status == health.expected_status
        return self.answer is Answer.SERVING


@dataclass(frozen=True, slots=True)
class Observation:
    """Observed state of the session and the server of a trial.

    ``status``: status of the session, None if the session does not exist. ``message``, ``code``:
    reason for the status as English text, and its code. ``seconds``: time in this status, or since
    the start of a running session. ``check``: the last health check.
    """

    status: Status | None
    seconds: float
    health: HealthCheck = field(default_factory=HealthCheck)
    message: str = ""
    code: str = ""
    exit_code: int | None = None
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of a trial; ``is_healthy``: None while the trial continues."""

    text: CodedText
    is_healthy: bool | None = None


def explain(seen: Observation) -> Finding:
    """Return a message about the state of a trial, and its result if it has ended."""
    if seen.status is None:
        return Finding(TextTemplate.TRIAL_LOST.text(), False)
    if seen.status is Status.TERMINATING and seen.seconds < MAX_END_SECONDS:
        # The exit code and the log are not known yet.
        return Finding(TextTemplate.TRIAL_ENDING.text())
    if seen.status in (*ENDED, Status.TERMINATING, Status.SUSPENDED):
        return Finding(_end(seen), False)
    if seen.status is Status.RUNNING:
        return _running(seen)
    if seen.status is Status.PENDING:
        if not seen.message:
            return Finding(TextTemplate.TRIAL_STARTING.text())
        if seen.seconds < MAX_PENDING_SECONDS:
            return Finding(TextTemplate.TRIAL_PENDING.text(message=seen.message))
        limit = TextTemplate.TRIAL_NO_RESOURCES.text(
            limit_seconds=MAX_PENDING_SECONDS, message=seen.message
        )
        return Finding(limit, False)
    if seen.seconds < MAX_START_SECONDS:
        return Finding(TextTemplate.TRIAL_STARTING.text())
    return Finding(TextTemplate.TRIAL_NOT_STARTED.text(message=seen.message), False)


def _running(seen: Observation) -> Finding:
    check, health = seen.check, seen.health
    if check and check.is_healthy(health):
        return Finding(TextTemplate.TRIAL_HEALTHY.text(start_seconds=int(seen.seconds)), True)
    is_over = seen.seconds >= health.start_seconds
    return Finding(_unhealthy(seen), False if is_over else None)


def _unhealthy(seen: Observation) -> CodedText:
    check, health = seen.check, seen.health
    if check is None or check.answer is Answer.UNREACHABLE:
        return TextTemplate.TRIAL_UNREACHABLE.text()
    if check.answer is Answer.NO_HTTP:
        return TextTemplate.TRIAL_NO_HTTP.text()
    if check.answer is Answer.NO_SERVICE:
        return TextTemplate.TRIAL_NO_SERVICE.text(path=health.path)
    if (template := _GRPC.get(check.answer)) is not None:
        return template.text()
    if check.answer is Answer.TIMEOUT:
        return TextTemplate.TRIAL_SLOW.text(
            path=health.path, timeout_seconds=int(health.timeout_seconds)
        )
    if check.answer is Answer.REFUSED and check.listening:
        ports = ", ".join(map(str, check.listening))
        return TextTemplate.TRIAL_OTHER_PORT.text(names=ports)
    if check.answer is Answer.REFUSED:
        return TextTemplate.TRIAL_NOT_LISTENING.text(
            start_seconds=int(seen.seconds), limit_seconds=int(health.start_seconds)
        )
    if check.status == 404:
        return TextTemplate.TRIAL_NO_PATH.text(path=health.path)
    return TextTemplate.TRIAL_STATUS.text(
        path=health.path, status=check.status, expected=health.expected_status
    )


def _end(seen: Observation) -> CodedText:
    """Return why the session ended before it became healthy."""
    code = seen.exit_code
    if seen.code == TextTemplate.OUT_OF_MEMORY.code:
        return TextTemplate.TRIAL_OUT_OF_MEMORY.text()
    if code == _KILLED:
        return TextTemplate.TRIAL_KILLED.text()
    if code == _NOT_FOUND:
        return TextTemplate.TRIAL_COMMAND_NOT_FOUND.text()
    if code == _NOT_EXECUTABLE:
        return TextTemplate.TRIAL_NOT_EXECUTABLE.text()
    if code == 0:
        return TextTemplate.TRIAL_EXITED_AT_ONCE.text()
    if code is not None:
        return TextTemplate.TRIAL_EXITED.text(code=code)
    if any(word in seen.message.lower() for word in _PULL):
        return TextTemplate.TRIAL_NO_IMAGE.text(message=seen.message)
    return TextTemplate.TRIAL_NOT_STARTED.text(message=seen.message)


def cause_in_log(lines: str) -> CodedText | None:
    """Return a known cause of the end of a server from the last lines of its output."""
    found = [*_NO_MODULE.findall(lines), *_NO_MAIN_MODULE.findall(lines)]
    if found:
        return TextTemplate.TRIAL_NO_PACKAGE.text(name=found[-1])
    lowered = lines.lower()
    if any(text in lowered for text in _GPU_MEMORY):
        return TextTemplate.TRIAL_GPU_MEMORY.text()
    return None


def last_lines(log: str) -> str:
    """Return the last lines of a log as valid UTF-8 without NUL characters, within the limits."""
    text = log.replace("\0", "").encode(errors="replace").decode(errors="replace")
    return "\n".join(text.splitlines()[-MAX_LOG_LINES:])[-MAX_LOG_CHARS:]
