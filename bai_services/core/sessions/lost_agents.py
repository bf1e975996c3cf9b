"""Sessions on lost agents: when their kernels have stopped, and what happens to the sessions.

The last acknowledged heartbeat of an agent is a lease. When it expires, the agent stops the kernels
of batch sessions (fencing). The manager starts such a session again only when the agent has
certainly stopped the old kernel, so that no command runs twice at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..cluster.model import AgentStatus
from .lifecycle import SessionType, Status

# Time for an agent to stop the kernels after the end of its lease. It includes the interval of its
# checks (1 s), the time between SIGTERM and SIGKILL (5 s), and calls of a slow engine.
FENCE_MARGIN_SECONDS = 15
MIN_REQUEUE_SECONDS = 45
MIN_FENCE_SECONDS = MIN_REQUEUE_SECONDS - FENCE_MARGIN_SECONDS
MAX_REQUEUE_SECONDS = 24 * 3600
MIN_WAIT_SECONDS = 60
MAX_WAIT_SECONDS = 7 * 24 * 3600
# Number of lost agents after which a session ends, because its command may be the cause.
MAX_LOST_AGENTS = 5


@dataclass(frozen=True, slots=True)
class LostAgentOptions:
    """The option ``lost_agents`` of a resource group.

    ``requeue_after_seconds``: time without a heartbeat after which batch sessions of a lost agent
    return to the queue; 0: they wait like other sessions. ``wait_seconds``: time for which sessions
    wait for a lost agent before they end.
    """

    requeue_after_seconds: int = 600
    wait_seconds: int = 3600

    def fence_seconds(self, session_type: str, deadline_seconds: int) -> int | None:
        """Return the age of an agent's lease at which the agent stops a kernel; None: never.

        The manager requeues a session only when its agent is lost, so the time without a heartbeat
        is always longer than ``deadline_seconds``.
        """
        if session_type != SessionType.BATCH or not self.requeue_after_seconds:
            return None
        requeue_after = max(self.requeue_after_seconds, deadline_seconds + 5)
        return requeue_after - FENCE_MARGIN_SECONDS


def is_fenced(lease_age_seconds: float, fence_seconds: int | None) -> bool:
    """Return whether an agent whose lease has this age must not run a kernel."""
    return fence_seconds is not None and lease_age_seconds >= fence_seconds


def has_stopped(agent_status: str, silent_seconds: float, fence_seconds: int | None) -> bool:
    """Return whether a kernel has certainly stopped, because its agent must have stopped it by now.

    ``silent_seconds``: time since the last heartbeat, by the monotonic clock of the manager. An
    agent that has signed off stops no kernels.
    """
    is_lost = agent_status == AgentStatus.LOST and fence_seconds is not None
    return is_lost and is_fenced(silent_seconds - FENCE_MARGIN_SECONDS, fence_seconds)


@dataclass(frozen=True, slots=True)
class KernelOnAgent:
    """A kernel of a session that has a kernel on a lost agent.

    ``is_lost``: the kernel's agent is lost or has signed off, ``lost_seconds`` ago.
    ``has_stopped``: its agent has removed it, or must have stopped it (see the function
    ``has_stopped``).
    """

    is_lost: bool
    has_stopped: bool
    lost_seconds: float = 0.0


class Action(StrEnum):
    """What happens to a session with a lost agent."""

    # It was not started: it is pending again.
    DISPLACE = "displace"
    # It waits for the agent.
    WAIT = "wait"
    # Its kernels on lost agents have stopped. Stop its other kernels; then it is pending again.
    REQUEUE = "requeue"
    # It was stopped, or is being requeued, and all its kernels have stopped.
    FINISH = "finish"
    FAIL = "fail"


def action_for(status: Status, kernels: Sequence[KernelOnAgent], wait_seconds: int) -> Action:
    """Return what happens to a session with a kernel on a lost agent."""
    if status in (Status.SCHEDULED, Status.PREPARING):
        return Action.DISPLACE
    lost = [kernel for kernel in kernels if kernel.is_lost]
    if all(kernel.has_stopped for kernel in lost):
        if status is Status.TERMINATING:
            is_over = all(kernel.has_stopped for kernel in kernels)
            return Action.FINISH if is_over else Action.WAIT
        return Action.REQUEUE
    is_over = max(kernel.lost_seconds for kernel in lost) >= wait_seconds
    return Action.FAIL if is_over else Action.WAIT
