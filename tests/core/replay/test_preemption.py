"""Preemption in a replay."""

from __future__ import annotations

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import AgentState, Policy
from bai_services.core.scheduling.preemption.options import PreemptionMode, PreemptionOptions
from bai_services.core.scheduling.queue import GroupState
from bai_services.core.scheduling.replay.simulate import replay
from bai_services.core.scheduling.replay.workload import ARCHITECTURE, ENGINE, GROUP, Job

_AGENT = AgentState("a", GROUP, ARCHITECTURE, ENGINE, {"cpu": 1000, "mem": 2**30})


def _jobs() -> list[Job]:
    slots = ResourceSlots({"cpu": 1000})
    return [
        Job("low", 0, 100, slots, user="ann", priority=1),
        Job("high", 10, 50, slots, user="bob", priority=20),
    ]


def _starts(options: PreemptionOptions) -> tuple[dict[str, int | None], int, int]:
    state = GroupState(GROUP, placement=Policy.BEST_FIT, preemption=options)
    result = replay(_jobs(), [_AGENT], state)
    return {o.job.id: o.started for o in result.outcomes}, result.preemptions, result.lost_seconds


def test_preempted_job_starts_again_after_the_other_one() -> None:
    options = PreemptionOptions(enabled=True, grace_seconds=5)
    assert _starts(options) == ({"low": 65, "high": 15}, 1, 15)


def test_terminated_job_does_not_start_again() -> None:
    options = PreemptionOptions(enabled=True, grace_seconds=5, mode=PreemptionMode.TERMINATE)
    assert _starts(options) == ({"low": 0, "high": 15}, 1, 15)


def test_without_the_option_the_job_waits() -> None:
    assert _starts(PreemptionOptions()) == ({"low": 0, "high": 100}, 0, 0)
