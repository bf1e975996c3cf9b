"""Sessions that their agent starts without a Hub server, each attempt at most once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from .lifecycle import SessionType

# Values of the field ``started_by`` of a session.
BY_AGENT = "agent"
BY_MANAGER = "manager"


def runs_on_agent(kind: str, cluster_size: int, started_by: str, *, can_launch: bool) -> bool:
    """Return whether the agent starts a prepared session; otherwise, the Hub starts it as a server.

    Only batch sessions can run without a Hub server; when their owner opens one, the Hub attaches a
    server to it (`is_openable`). ``can_launch``: the agent has offered to start the session. A
    session that was created through the Hub remains a Hub server, because its spawner waits for it.
    """
    is_batch = kind == SessionType.BATCH and cluster_size == 1
    return can_launch and is_batch and started_by in (BY_MANAGER, BY_AGENT)


def is_openable(kind: str, started_by: str) -> bool:
    """Return whether a running session has a server of the Hub, or the Hub can attach one to it.

    A batch session that is a server of the Hub runs only its command.
    """
    return kind != SessionType.BATCH or started_by == BY_AGENT


class Phase(StrEnum):
    """Phases of one start attempt of a kernel on its agent, in this order."""

    PREPARED = "prepared"
    # Written before the engine is called: the kernel may have been started.
    INTENDED = "intended"
    STARTED = "started"
    # Nothing is started any more in this attempt.
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Marker:
    """The state of a start attempt that an agent stores; ``running`` is the engine's handle."""

    attempt: int
    phase: Phase = Phase.PREPARED
    running: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Marker:
        """Parse a marker; raise KeyError, TypeError or ValueError if it is malformed."""
        return cls(int(data["attempt"]), Phase(data["phase"]), dict(data.get("running") or {}))

    def to_json(self) -> dict[str, Any]:
        return {"attempt": self.attempt, "phase": self.phase, "running": dict(self.running)}

    def moved(self, phase: Phase, running: Mapping[str, Any] | None = None) -> Marker:
        return replace(self, phase=phase, running=self.running if running is None else running)


class Step(StrEnum):
    """The reaction of an agent to a launch order."""

    START = "start"
    # The agent was killed during the start: start the kernel only if the engine does not know it.
    RESOLVE = "resolve"
    # The kernel was started before; report it again.
    REPORT = "report"
    REFUSE = "refuse"


def launch_step(marker: Marker | None, attempt: int) -> Step:
    """Return what to do with an order to launch a kernel, given the marker of that kernel.

    An order can arrive several times and late. The preparation of an attempt writes the marker, and
    the removal of the kernel deletes it. Therefore an order without a matching marker is outdated.
    """
    if marker is None or marker.attempt != attempt:
        return Step.REFUSE
    return {
        Phase.PREPARED: Step.START,
        Phase.INTENDED: Step.RESOLVE,
        Phase.STARTED: Step.REPORT,
        Phase.CLOSED: Step.REFUSE,
    }[marker.phase]


def may_prepare(marker: Marker | None, attempt: int) -> bool:
    """Return whether to execute an order to prepare a kernel.

    A preparation removes the remains of the last attempt. If the order is repeated, it must not
    remove the kernel that its own attempt has started.
    """
    if marker is None or marker.attempt < attempt:
        return True
    return marker.attempt == attempt and marker.phase is Phase.PREPARED
