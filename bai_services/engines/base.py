"""Interface of the engines to the spawner and the agent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from traitlets import Float
from traitlets.config import LoggingConfigurable

from bai_services.core.coded_text import TextTemplate
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
    """The engine does not respond, so the states of its kernels are unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="engine-unreachable")


@dataclass(frozen=True, slots=True)
class Running:
    """Handle of a started kernel: the data that a restarted Hub needs to poll and stop it."""

    engine: str
    session_id: str
    url: str
    owner: str = ""
    endpoint: str = ""
    container_id: str = ""
    kernel_id: str = ""
    hostname: str = MAIN_HOST
    subs: tuple[Running, ...] = ()
    """The sub kernels of a cluster session."""
    pid: int = 0
    """Process engine: the process that was started."""
    pid_started: str = ""
    """When ``pid`` started, to detect a reused pid; see ``processes.started_at``."""
    init_pid: int = 0
    """Process engine: the first process of the sandbox; 0 without a sandbox."""
    init_started: str = ""
    """When ``init_pid`` started."""
    log_pid: int = 0
    """Process engine: the process that writes the log; it exits when its input pipe is closed."""
    log_started: str = ""
    """When ``log_pid`` started."""
    is_attached: bool = False
    """Whether the handle belongs to a server in a kernel that runs without it (`Engine.attach`)."""
    exec_id: str = ""
    """Docker engine: the exec instance of an attached server."""

    @classmethod
    def named(cls, plan: LaunchPlan) -> Running:
        """Return a handle that only names the kernel of a plan, for ``Engine.find``."""
        return cls(
            engine=plan.engine,
            session_id=plan.session_id,
            url="",
            owner=plan.user,
            endpoint=plan.endpoint,
            kernel_id=plan.kernel_id,
            hostname=plan.hostname,
        )

    def to_state(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**state, "subs": tuple(sub.to_state() for sub in self.subs)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Running:
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in state.items() if name in known}
        values["subs"] = tuple(cls.from_state(sub) for sub in values.get("subs") or ())
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a kernel ended; ``code`` is its exit code, None if unknown."""

    code: int | None
    reason: EndReason = EndReason.EXITED
    text: str = TextTemplate.EXITED.value

    @property
    def as_poll(self) -> int:
        """The exit status for JupyterHub's ``poll``; 1 if the code is unknown."""
        return 1 if self.code is None else self.code


class Engine(LoggingConfigurable):
    """Interface to start, poll and stop kernels.

    An engine object keeps no kernels in memory: callers pass the kernel's `Running` to each method.
    """

    name: ClassVar[str]
    is_local: ClassVar[bool] = False
    """Whether kernels run on the Hub's machine and use the Hub's programs."""

    stop_grace_seconds = Float(
        10,
        min=0,
        help="""
        Seconds between SIGTERM and SIGKILL when a session stops. 0 sends SIGKILL immediately.
        """,
    ).tag(config=True)

    @abstractmethod
    async def address(self, plan: LaunchPlan) -> tuple[str, int]:
        """Return the address and port on which the server in the kernel must listen."""

    @abstractmethod
    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        """Start the kernel of ``plan``, and return its handle.

        First remove an earlier kernel of the same session with the same host name.

        ``environ`` is the Hub's part of the environment. The command of ``plan`` takes precedence
        over ``command``. If both are empty, the default of the image or engine is run. A failed or
        cancelled start leaves no process or container.

        Raises
        ------
        EngineError
            If the kernel cannot be started; ``EngineUnreachable`` if the engine does not respond.
        """

    async def attach(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        """Start a Jupyter server in the running kernel of ``plan``, and return its handle.

        The server has the file system, limits, devices and user of the kernel. First stop an
        earlier server in the same kernel. If ``command`` is empty, run the default command of the
        image or engine. ``environ`` is the Hub's part of the environment.

        Raises
        ------
        EngineError
            If the kernel does not run, or the server cannot be started. An engine that does not
            override the method always raises it.
        """
        raise EngineError(f"the engine {self.name} cannot open batch sessions")

    async def poll_attached(self, running: Running) -> Exit | None:
        """Return None while an attached server runs, else its exit.

        Raises
        ------
        EngineUnreachable
            If the engine does not respond.
        """
        raise NotImplementedError

    async def stop_attached(self, running: Running, now: bool = False) -> Exit:
        """Stop an attached server and the processes that it has started; the kernel continues.

        ``now`` skips SIGTERM and the grace period.

        Raises
        ------
        EngineUnreachable
            If the engine does not respond.
        """
        raise NotImplementedError

    @abstractmethod
    async def find(self, kernel: Running) -> Running | None:
        """Return the complete handle of a kernel if it was started, whether it runs or has ended.

        ``kernel`` names the session, kernel, host name, owner and endpoint (`named`).

        Return None only if no command of the kernel can have run. This tells a caller that was
        killed during `start` whether to repeat the start.

        Raises
        ------
        EngineUnreachable
            If the engine does not respond.
        """

    @abstractmethod
    async def poll(self, running: Running) -> Exit | None:
        """Return None while the kernel runs, else its exit.

        Raises
        ------
        EngineUnreachable
            If the engine does not respond.
        """

    @abstractmethod
    async def read_log(self, running: Running, max_bytes: int) -> str:
        """Return the last ``max_bytes`` of the kernel's output; empty if the output is lost."""

    @abstractmethod
    async def stop(self, running: Running, now: bool = False) -> Exit:
        """Stop the kernel and all its processes, and return its exit; its log stays readable.

        ``now`` skips SIGTERM and the grace period.

        Raises
        ------
        EngineUnreachable
            If the engine does not respond; the kernel may still be running.
        """

    @abstractmethod
    async def remove(self, running: Running) -> None:
        """Remove the container or files of an ended kernel; its log may be lost. Idempotent."""


def tail(text: str, max_bytes: int) -> str:
    """Return at most the last ``max_bytes`` (UTF-8) of ``text``; omit a partial first line.

    If the last line alone is longer, return its end.
    """
    data = text.encode(errors="replace")
    if len(data) <= max_bytes:
        return text
    cut = data[-max_bytes:].decode(errors="ignore")
    return cut.partition("\n")[2] or cut


# Variable that marks the processes of an attached server; its value is the id of the kernel.
ATTACHED_VARIABLE = "BAI_ATTACHED_SERVER"


def attached_environ(plan: LaunchPlan, hub: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an attached server that differ from those of its kernel."""
    return {**hub, **plan.marks, ATTACHED_VARIABLE: plan.kernel_id}


def merged_environ(
    plan: LaunchPlan, hub: Mapping[str, str], engine: Mapping[str, str]
) -> dict[str, str]:
    """Return the complete environment of a kernel.

    Sources in ascending priority: the devices' defaults, the plan (with the user's variables), the
    Hub, the devices, the engine, and the variables that identify processes of a session. Users
    cannot set the Hub's variables.
    """
    of_plan = {
        name: value
        for name, value in plan.environ.items()
        if not name.startswith(("JUPYTERHUB_", "JPY_"))
    }
    return {
        **plan.injection.defaults,
        **of_plan,
        **hub,
        **plan.injection.environ,
        **engine,
        **plan.marks,
    }
