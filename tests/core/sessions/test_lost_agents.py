"""Sessions on a lost agent: the action of the manager, and the time at which the kernel has
certainly stopped.
"""

from __future__ import annotations

import pytest

from bai_services.core.cluster.model import AgentStatus
from bai_services.core.sessions.lifecycle import SessionType, Status
from bai_services.core.sessions.lost_agents import (
    FENCE_MARGIN_SECONDS,
    Action,
    KernelOnAgent,
    LostAgentOptions,
    action_for,
    has_stopped,
)

ALIVE = KernelOnAgent(False, False)
REMOVED = KernelOnAgent(False, True)
RUNS = KernelOnAgent(True, False, 60)
OVERDUE = KernelOnAgent(True, False, 3600)
STOPPED = KernelOnAgent(True, True, 60)


@pytest.mark.parametrize(
    "status, kernels, action",
    [
        pytest.param(Status.SCHEDULED, [RUNS], Action.DISPLACE, id="not started"),
        pytest.param(Status.PREPARING, [ALIVE, RUNS], Action.DISPLACE, id="one of two agents"),
        pytest.param(Status.RUNNING, [RUNS], Action.WAIT, id="its kernel may run"),
        pytest.param(Status.RUNNING, [OVERDUE], Action.FAIL, id="waited long enough"),
        pytest.param(Status.RUNNING, [STOPPED], Action.REQUEUE, id="its kernel has stopped"),
        pytest.param(Status.PREPARED, [STOPPED], Action.REQUEUE, id="not reported as started"),
        pytest.param(Status.RUNNING, [STOPPED, RUNS], Action.WAIT, id="one of two has stopped"),
        pytest.param(Status.RUNNING, [ALIVE, STOPPED], Action.REQUEUE, id="the other is alive"),
        pytest.param(Status.TERMINATING, [ALIVE, STOPPED], Action.WAIT, id="the other stops"),
        pytest.param(Status.TERMINATING, [REMOVED, STOPPED], Action.FINISH, id="both stopped"),
        pytest.param(Status.TERMINATING, [RUNS], Action.WAIT, id="being stopped"),
        pytest.param(Status.TERMINATING, [OVERDUE], Action.FAIL, id="never stopped"),
    ],
)
def test_action_depends_on_the_status_and_the_kernels(
    status: Status, kernels: list[KernelOnAgent], action: Action
) -> None:
    assert action_for(status, kernels, wait_seconds=3600) is action


def test_kernel_has_stopped_only_after_the_time_of_its_agent_and_the_margin() -> None:
    late = 30 + FENCE_MARGIN_SECONDS
    assert has_stopped(AgentStatus.LOST, late, 30)
    assert not has_stopped(AgentStatus.LOST, late - 1, 30)
    # An agent that has signed off, or does not support fencing, stops no kernels.
    assert not has_stopped(AgentStatus.TERMINATED, late, 30)
    assert not has_stopped(AgentStatus.LOST, 10**9, None)


def test_batch_sessions_are_fenced_before_they_are_requeued() -> None:
    options = LostAgentOptions(requeue_after_seconds=600)
    assert options.fence_seconds(SessionType.BATCH, 40) == 585
    assert options.fence_seconds(SessionType.INTERACTIVE, 40) is None
    assert LostAgentOptions(requeue_after_seconds=0).fence_seconds(SessionType.BATCH, 40) is None


def test_fence_follows_a_long_deadline_of_heartbeats() -> None:
    options = LostAgentOptions(requeue_after_seconds=45)
    # Otherwise, an agent that is late by less than the deadline would stop its kernels.
    assert options.fence_seconds(SessionType.BATCH, 300) == 290
