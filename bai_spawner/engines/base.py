"""Interface between the spawner and its engines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from traitlets import Float
from traitlets.config import LoggingConfigurable

from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.launch_plan import LaunchPlan


class EngineError(Exception):
    """An engine failed; the text is meant for the user.

    ``reason`` is a short code for metrics and for the session's history.
    """

    def __init__(self, message: str, reason: str = "engine-failed") -> None:
        super().__init__(message)
        self.reason = reason


class EngineUnreachable(EngineError):
    """The engine does not respond, so the state of its kernels is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="engine-unreachable")


@dataclass(frozen=True, slots=True)
class Running:
    """A started kernel: everything that a restarted Hub needs to watch and to stop it."""

    engine: str
    session_id: str
    url: str
    owner: str = ""
    endpoint: str = ""
    container_id: str = ""
    kernel_id: str = ""
    hostname: str = MAIN_HOST
    subs: tuple[Running, ...] = ()
    """The other kernels of a cluster session."""
    pid: int = 0
    """Process engine: the started process, and the first process of its sandbox (0 without one)."""
    pid_started: str = ""
    init_pid: int = 0
    init_started: str = ""
    log_pid: int = 0
    """Process engine: the log writer; it ends by itself when no process can print any more."""
    log_started: str = ""

    def to_state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Running:
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in state.items() if name in known}
        values["subs"] = tuple(cls.of_state(sub) for sub in values.get("subs") or ())
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a kernel ended; ``code`` is None if it is unknown."""

    code: int | None
    reason: EndReason = EndReason.EXITED
    text: str = "exited"

    @property
    def as_poll(self) -> int:
        """The number for JupyterHub's ``poll``: 0 is a clean end."""
        return 1 if self.code is None else self.code


class Engine(LoggingConfigurable):
    """Starts, watches and stops kernels; its whole state is in `Running`."""

    name: ClassVar[str]
    is_local: ClassVar[bool] = False
    """Whether it runs on the Hub's own machine, with the Hub's own programs."""

    stop_grace_seconds = Float(
        10,
        min=0,
        help="""
        Seconds between SIGTERM and SIGKILL when a session
        stops. 0 sends the final one at once.
        """,
    ).tag(config=True)

    @abstractmethod
    async def address(self, plan: LaunchPlan) -> tuple[str, int]:
        """Return the address and port on which the server inside shall listen."""

    @abstractmethod
    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        """Start the kernel of ``plan``; an earlier one of the same session is removed first.

        ``environ`` is the Hub's part of the environment; an empty ``command`` means the image's
        or the engine's own. Leaves nothing behind when it fails or is cancelled.

        Raises
        ------
        EngineError
            If it cannot be started; ``EngineUnreachable`` if the engine does not answer.
        """

    @abstractmethod
    async def poll(self, running: Running) -> Exit | None:
        """Return None while it runs, else how it ended.

        Raises
        ------
        EngineUnreachable
            If the engine does not say.
        """

    @abstractmethod
    async def read_log(self, running: Running, max_bytes: int) -> str:
        """Return the end of what it printed, at most ``max_bytes`` of it; empty if lost."""

    @abstractmethod
    async def stop(self, running: Running, now: bool = False) -> Exit:
        """End it with everything it started, and return how it ended; its log stays readable.

        Raises
        ------
        EngineUnreachable
            If the engine does not answer: it may still run.
        """

    @abstractmethod
    async def remove(self, running: Running) -> None:
        """Remove the remains of an ended kernel; idempotent."""


def tail(text: str, max_bytes: int) -> str:
    """Return the last ``max_bytes`` of ``text`` in UTF-8, from the start of a line."""
    data = text.encode(errors="replace")
    if len(data) <= max_bytes:
        return text
    cut = data[-max_bytes:].decode(errors="ignore")
    return cut.partition("\n")[2] or cut


def merged_environ(
    plan: LaunchPlan, hub: Mapping[str, str], engine: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of a kernel.

    Sources in ascending priority: device defaults, the plan's (including the user's variables), the
    Hub's, the devices', the engine's, our marks. Users cannot set the Hub's own variables.
    """
    own = {
        name: value
        for name, value in plan.environ.items()
        if not name.startswith(("JUPYTERHUB_", "JPY_"))
    }
    return {
        **plan.injection.defaults,
        **own,
        **hub,
        **plan.injection.environ,
        **engine,
        **plan.marks,
    }
