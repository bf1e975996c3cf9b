"""Changes applied to a queue: decisions, reported reasons, and the cost of a pass."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bai_services.core.scheduling.caps import ScopeCaps
from bai_services.core.scheduling.placement import Policy
from bai_services.core.scheduling.queue import Backfill, Changes, GroupState, Queue, run_pass

from .factories import (
    ANN,
    BOB,
    NOW,
    WAITS_FOR_S0,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    started_sessions,
)


def test_ended_session_frees_capacity_for_the_next() -> None:
    queue = Queue(
        snapshot([pending_session(n, wanted=request(cpu="8")) for n in (1, 2)], [agent()])
    )
    assert started_sessions(queue.run(NOW)) == ["s1"]
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(removed=["s1"]))
    assert started_sessions(queue.run(NOW)) == ["s2"]


def test_decision_that_was_not_written_to_the_database_is_reverted() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=1)}
    queue = Queue(snapshot([pending_session(1)], [agent(cpu=1)], caps=caps))
    assert started_sessions(queue.run(NOW)) == ["s1"]
    queue.apply(Changes(pending=[pending_session(1)]))
    assert started_sessions(queue.run(NOW)) == ["s1"]
    assert queue.quotas.used(ANN) == {"sessions": 1, "cpu": 1000, "mem": 2**30}


def test_cancelled_session_does_not_start() -> None:
    queue = Queue(snapshot([pending_session(1), pending_session(2)], [agent(used={"cpu": 8000})]))
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(removed=["s1"], agents=[agent()]))
    assert started_sessions(queue.run(NOW)) == ["s2"]


def test_session_started_by_another_manager_uses_capacity() -> None:
    queue = Queue(snapshot([pending_session(1, wanted=request(cpu="8"))], [agent()]))
    queue.apply(Changes(running=[running("r", BOB, "a", slots(cpu="1"))]))
    assert started_sessions(queue.run(NOW)) == []
    assert queue.quotas.used(BOB)["cpu"] == 1000
    queue.apply(Changes(removed=["r"]))
    assert started_sessions(queue.run(NOW)) == ["s1"]
    assert queue.quotas.used(BOB) == {}


def test_session_starts_after_its_cap_is_raised() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=0)}
    queue = Queue(snapshot([pending_session(1)], [agent()], caps=caps))
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(caps={ANN: ScopeCaps(ANN, "ann", max_sessions=1)}))
    assert started_sessions(queue.run(NOW)) == ["s1"]


def test_changed_usage_of_a_scope_is_applied() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=1)}
    queue = Queue(
        snapshot([pending_session(1)], [agent()], caps=caps, usage={ANN: {"sessions": 1}})
    )
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(usage={ANN: {"sessions": 0}}))
    assert started_sessions(queue.run(NOW)) == ["s1"]


def test_pending_sessions_start_on_a_new_agent() -> None:
    queue = Queue(snapshot([pending_session(1)], []))
    queue.run(NOW)
    queue.apply(Changes(agents=[agent("new")]))
    assert [d.placement.agent_id for d in queue.run(NOW).decisions] == ["new"]


def test_removed_or_moved_agent_gets_no_session_of_its_old_group() -> None:
    queue = Queue(
        snapshot(
            [pending_session(1), pending_session(2, wanted=request("side"))], [agent(), agent("b")]
        )
    )
    queue.apply(Changes(removed_agents=["a"], agents=[agent("b", resource_group="side")]))
    assert [(d.session_id, d.placement.agent_id) for d in queue.run(NOW).decisions] == [("s2", "b")]


def test_unschedulable_agent_gets_no_new_sessions() -> None:
    queue = Queue(snapshot([pending_session(1)], [agent()]))
    queue.run(NOW)
    drained = agent(is_schedulable=False, used={"cpu": 1000, "mem": 2**30})
    queue.apply(Changes(agents=[drained], pending=[pending_session(2)]))
    assert started_sessions(queue.run(NOW)) == []
    assert "not schedulable" in queue.reasons_of("s2")[0]["message"]


def test_session_does_not_start_before_its_start_time() -> None:
    at = NOW + timedelta(minutes=10)
    queue = Queue(snapshot([pending_session(1, not_before=at)], [agent()]))
    result = queue.run(NOW)
    assert result.wake_at == at
    assert started_sessions(queue.run(at - timedelta(seconds=1))) == []
    assert started_sessions(queue.run(at)) == ["s1"]


def test_session_starts_when_its_dependencies_are_met() -> None:
    queue = Queue(snapshot([pending_session(1, unmet_dependencies=WAITS_FOR_S0)], [agent()]))
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(pending=[pending_session(1)]))
    assert started_sessions(queue.run(NOW)) == ["s1"]


def test_changed_policy_takes_effect_at_the_next_pass() -> None:
    pending = [pending_session(1, wanted=request(cpu="8")), pending_session(2)]
    full = agent(used={"cpu": 1000})
    queue = Queue(
        snapshot(
            pending,
            [full],
            running=[running("r", BOB, "a", slots())],
            group={"backfill": Backfill.OFF},
        )
    )
    assert started_sessions(queue.run(NOW)) == []
    state = GroupState("main", placement=Policy.SPREAD, backfill=Backfill.AGGRESSIVE)
    queue.apply(Changes(groups=[state]))
    assert started_sessions(queue.run(NOW)) == ["s2"]


def test_pass_without_changes_reports_no_reasons() -> None:
    queue = Queue(snapshot([pending_session(n) for n in range(1, 5)], [agent(used={"cpu": 8000})]))
    first = queue.run(NOW)
    assert set(first.changed) == {"s1", "s2", "s3", "s4"}
    again = queue.run(NOW + timedelta(seconds=1))
    assert not again.changed
    assert again.reasons["s4"] is first.reasons["s1"]
    queue.apply(Changes(pending=[pending_session(5)]))
    assert set(queue.run(NOW).changed) == {"s5"}


def test_only_changed_reasons_are_reported_again() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=1)}
    pending = [pending_session(1), pending_session(2), pending_session(3, BOB, request(cpu="99"))]
    queue = Queue(snapshot(pending, [agent()], caps=caps))
    assert set(queue.run(NOW).changed) == {"s2", "s3"}
    queue.apply(Changes(caps={ANN: ScopeCaps(ANN, "ann", max_sessions=0)}))
    changed = queue.run(NOW).changed
    assert set(changed) == {"s2"}
    assert changed["s2"][0]["limit"] == "0"


def test_sessions_of_one_shape_cause_one_placement_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ten thousand equal pending sessions, a pass attempts only one placement."""
    queue = Queue(
        snapshot([pending_session(n) for n in range(10_000)], [agent(used={"cpu": 8000})])
    )
    placer = queue.group_queue("main").placer
    tries = []
    place = placer.place
    monkeypatch.setattr(placer, "place", lambda shape: tries.append(shape) or place(shape))
    queue.run(NOW)
    assert len(tries) == 1
    queue.run(NOW)
    assert len(tries) == 1


def test_updated_queue_makes_the_same_decisions_as_a_new_queue() -> None:
    queue = Queue(snapshot([pending_session(n) for n in range(1, 12)], [agent()]))
    queue.run(NOW)
    queue.apply(Changes(removed=["s1", "s2", "s9"]))
    expected = run_pass(
        snapshot(
            [pending_session(10), pending_session(11)],
            [agent(used={"cpu": 6000, "mem": 6 * 2**30})],
        )
    )
    assert started_sessions(queue.run(NOW)) == started_sessions(expected) == ["s10", "s11"]
