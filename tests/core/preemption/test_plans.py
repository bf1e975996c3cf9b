"""Preemption plans of scheduling passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from bai_services.core.scheduling.estimates.estimate import estimate_starts
from bai_services.core.scheduling.placement import AgentState, Mode
from bai_services.core.scheduling.preemption.options import (
    PreemptionOptions,
    VictimOrder,
    VictimScope,
)
from bai_services.core.scheduling.preemption.rules import Rule
from bai_services.core.scheduling.queue import (
    Changes,
    Order,
    PassResult,
    PendingSession,
    Queue,
    RunningSession,
)

from ..queue.factories import (
    ANN,
    BOB,
    CARL,
    NOW,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    started_sessions,
    with_usage,
)

ON = PreemptionOptions(enabled=True, preemptible_priority=50, grace_seconds=5)
FULL = slots(cpu="8")


def low(name: str, agent_id: str = "a", cpu: str = "4", **facts: object) -> RunningSession:
    values = {"priority": 5, **facts}
    return running(name, BOB, agent_id, slots(cpu=cpu), **values)


def queue_of(
    pending: list[PendingSession],
    sessions: Sequence[RunningSession],
    agents: Sequence[AgentState] = (agent("a"),),
    options: PreemptionOptions = ON,
) -> Queue:
    """Return a queue whose agents count the resources of the running sessions as used."""
    used = {each.id: each for each in agents}
    for session in sessions:
        for placement in session.placements:
            used[placement.agent_id] = with_usage(used[placement.agent_id], placement.slots)
    facts = {"running": sessions, "group": {"preemption": options}}
    return Queue(snapshot(pending, list(used.values()), **facts))


def victims(result: PassResult) -> dict[str, tuple[str, ...]]:
    return {p.session_id: p.plan.victim_ids for p in result.preemptions}


def high(n: int = 1, cpu: str = "4", **facts: object) -> PendingSession:
    return pending_session(n, ANN, request(cpu=cpu), **{"priority": 60, **facts})


def test_the_newest_session_of_the_lowest_priority_is_preempted() -> None:
    sessions = [
        low("old", cpu="2", started_at=NOW - timedelta(hours=3)),
        low("new", cpu="2", started_at=NOW - timedelta(minutes=1)),
        low("higher", cpu="4", priority=20, started_at=NOW),
    ]
    result = queue_of([high(cpu="2")], sessions).run(NOW)
    assert victims(result) == {"s1": ("new",)}
    (planned,) = result.preemptions
    assert planned.plan.stops_at == NOW + timedelta(seconds=5)
    assert planned.plan.victims == (("new", Rule.PRIORITY),)
    assert result.reasons["s1"][0]["check"] == "preemption"
    assert "new" not in str(result.reasons["s1"])


def test_no_session_is_preempted_where_the_option_is_off() -> None:
    result = queue_of([high()], [low("v"), low("w")], options=replace(ON, enabled=False)).run(NOW)
    assert result.preemptions == ()


def test_protected_sessions_are_not_preempted() -> None:
    """Protected: not preemptible, high priority, recently started, or still starting."""
    options = replace(ON, min_runtime_seconds=600)
    protected = [
        low("a1", "a", cpu="8", is_preemptible=False),
        low("b1", "b", cpu="8", priority=51),
        low("c1", "c", cpu="8", started_at=NOW - timedelta(seconds=599)),
        low("d1", "d", cpu="8", is_running=False),
    ]
    agents = [agent(name) for name in "abcd"]
    queue = queue_of([high(priority=51)], protected, agents, options)
    assert queue.run(NOW).preemptions == ()
    # A second later, the session on agent c has run long enough.
    assert queue.next_wake_at() == NOW + timedelta(seconds=1)
    assert victims(queue.run(NOW + timedelta(seconds=1))) == {"s1": ("c1",)}


def test_no_session_is_preempted_if_the_waiting_session_would_not_start() -> None:
    sessions = [low("v", cpu="4"), low("w", cpu="4", is_preemptible=False)]
    assert queue_of([high(cpu="8")], sessions).run(NOW).preemptions == ()


def test_a_session_that_ends_soon_makes_preemption_unnecessary() -> None:
    sessions = [low("v"), low("w", ends_at=NOW + timedelta(seconds=4))]
    assert queue_of([high()], sessions).run(NOW).preemptions == ()
    sessions = [low("v"), low("w", is_running=False, is_ending=True)]
    assert queue_of([high()], sessions).run(NOW).preemptions == ()


def test_scope_limits_whose_sessions_are_preempted() -> None:
    mine = replace(low("mine"), scopes=(ANN,))
    options = replace(ON, victim_scope=VictimScope.USER)
    assert victims(queue_of([high()], [low("other"), mine], options=options).run(NOW)) == {
        "s1": ("mine",)
    }


def test_job_priority_decides_between_sessions_of_one_user() -> None:
    mine = replace(low("mine"), scopes=(ANN,))
    urgent = high(priority=5, job_priority=1)
    queue = queue_of([urgent], [low("other"), mine])
    (planned,) = queue.run(NOW).preemptions
    assert planned.plan.victims == (("mine", Rule.JOB_PRIORITY),)


def test_users_over_their_share_are_preempted_only_as_far_as_shares_become_equal() -> None:
    options = replace(ON, over_fair_share=True)
    sessions = [low("v", cpu="4"), low("w", cpu="4")]
    waiting = [high(1, priority=5), high(2, priority=5)]
    queue = queue_of(waiting, sessions, options=options)
    (planned,) = queue.run(NOW).preemptions
    assert [rule for _, rule in planned.plan.victims] == [Rule.FAIR_SHARE]


def test_shares_are_compared_after_the_existing_plans() -> None:
    """A third plan would leave two of eight cores to the user of the running sessions."""
    options = replace(ON, over_fair_share=True)
    sessions = [low(f"v{n}", cpu="2") for n in range(4)]
    waiting = [high(n, cpu="2", priority=5) for n in range(3)]
    queue = queue_of(waiting, sessions, options=options)
    assert len(queue.run(NOW).preemptions) == 2
    assert not queue.run(NOW + timedelta(seconds=1)).preemptions


def test_victims_by_priority_reduce_the_share_of_their_user() -> None:
    """If ``lower`` and one more session were preempted, their user would have the smaller share."""
    options = replace(ON, over_fair_share=True)
    sessions = [
        low("lower", cpu="2", priority=1),
        low("v0", cpu="2"),
        low("v1", cpu="2"),
        replace(low("other", cpu="2"), scopes=(CARL,), is_preemptible=False),
    ]
    assert not queue_of([high(cpu="4", priority=5)], sessions, options=options).run(NOW).preemptions
    sessions[0] = low("lower", cpu="2", is_preemptible=False)
    queue = queue_of([high(cpu="2", priority=5)], sessions, options=options)
    assert len(queue.run(NOW).preemptions) == 1


def test_order_decides_between_few_and_new_victims() -> None:
    """Newest first preempts three small sessions; fewest sessions preempts one large one."""
    small = [low(f"v{n}", "a", cpu="2", started_at=NOW) for n in range(4)]
    large = low("large", "b", cpu="8")
    agents = [agent("a"), agent("b")]
    by_age = queue_of([high(cpu="6")], [*small, large], agents).run(NOW)
    assert len(victims(by_age)["s1"]) == 3
    options = replace(ON, order=VictimOrder.FEWEST_SESSIONS)
    fewest = queue_of([high(cpu="6")], [*small, large], agents, options).run(NOW)
    assert victims(fewest) == {"s1": ("large",)}


def test_cluster_sessions_are_preempted_and_started_as_a_whole() -> None:
    cluster = replace(
        low("cluster"),
        placements=(
            low("x", "a", cpu="8").placements[0],
            low("x", "b", cpu="8").placements[0],
        ),
    )
    wanted = replace(request(cpu="8"), kernels=2, mode=Mode.MULTI_NODE)
    waiting = pending_session(1, ANN, wanted, priority=60)
    agents = [agent("a"), agent("b")]
    queue = queue_of([waiting], [cluster], agents)
    assert victims(queue.run(NOW)) == {"s1": ("cluster",)}
    queue.apply(Changes(removed=["cluster"]))
    (decision,) = queue.run(NOW).decisions
    assert {placement.agent_id for placement in decision.placements} == {"a", "b"}


def test_freed_resources_are_held_until_the_session_starts() -> None:
    """An earlier, smaller session of another user does not get the freed resources."""
    sessions = [low("v", cpu="4"), low("w", cpu="4")]
    queue = queue_of([high(cpu="8")], sessions)
    assert set(victims(queue.run(NOW))["s1"]) == {"v", "w"}
    small = pending_session(0, BOB, request(cpu="1"), priority=100)
    queue.apply(Changes(removed=["v"], pending=[small]))
    result = queue.run(NOW)
    assert result.decisions == ()
    # The first victim returns to the queue before the second one has ended, and must not get the
    # released capacity.
    queue.apply(Changes(pending=[pending_session(2, BOB, request(cpu="4"), priority=5)]))
    assert queue.run(NOW).decisions == ()
    queue.apply(Changes(removed=["w"]))
    assert [d.session_id for d in queue.run(NOW).decisions] == ["s1"]


def test_plan_is_dropped_when_it_no_longer_helps() -> None:
    sessions = [low("v", cpu="8")]
    queue = queue_of([high(cpu="8")], sessions)
    assert queue.run(NOW).preemptions
    queue.apply(Changes(agents=[replace(agent("a"), is_alive=False)]))
    assert queue.run(NOW).dropped_plans == ("s1",)


def test_planned_session_starts_as_soon_as_it_fits_elsewhere() -> None:
    queue = queue_of([high(cpu="8")], [low("v", cpu="8")])
    assert queue.run(NOW).preemptions
    queue.apply(Changes(agents=[agent("b")]))
    (decision,) = queue.run(NOW).decisions
    assert (decision.session_id, decision.placement.agent_id) == ("s1", "b")


def test_plans_of_several_sessions_have_different_victims() -> None:
    sessions = [low(f"v{n}", cpu="2") for n in range(4)]
    result = queue_of([high(1, cpu="2"), high(2, cpu="2")], sessions).run(NOW)
    assert sorted(len(each) for each in victims(result).values()) == [1, 1]
    assert len({key for each in victims(result).values() for key in each}) == 2


def test_estimates_take_the_plan_into_account() -> None:
    queue = queue_of([high(cpu="8")], [low("v", cpu="8")])
    queue.run(NOW)
    assert estimate_starts(queue)["s1"].starts_at == NOW + timedelta(seconds=5)


def test_drf_counts_the_amounts_of_a_session_with_a_plan_for_its_user() -> None:
    agents = [agent("a"), agent("b")]
    sessions = [
        running("victim", CARL, "a", slots(cpu="8"), priority=5),
        running("other", CARL, "b", slots(cpu="4"), priority=60),
    ]
    (preemption,) = queue_of([high(cpu="8")], sessions, agents).run(NOW).preemptions
    planned = high(cpu="8", plan=preemption.plan)
    pending = [pending_session(2, ANN, request(cpu="4")), pending_session(3, BOB, request(cpu="4"))]
    used = [with_usage(agents[0], slots(cpu="8")), with_usage(agents[1], slots(cpu="4"))]
    group = {"preemption": ON, "order": Order.DRF}

    def first(*waiting: PendingSession) -> list[str]:
        state = snapshot([*waiting, *pending], used, running=sessions, group=group)
        return started_sessions(Queue(state).run(NOW))

    assert first() == ["s2"]
    assert first(planned) == ["s3"]
