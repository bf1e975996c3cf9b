"""Preemption in generated groups, compared with a naive search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope
from bai_services.core.scheduling.placement import (
    AgentState,
    Mode,
    Placement,
    Placer,
    Policy,
    Request,
)
from bai_services.core.scheduling.preemption.options import PreemptionOptions, VictimOrder
from bai_services.core.scheduling.preemption.rules import Rule
from bai_services.core.scheduling.queue import (
    Backfill,
    Changes,
    GroupState,
    PassResult,
    PendingSession,
    Queue,
    RunningSession,
    Snapshot,
)

from ..queue.factories import (
    ANN,
    BOB,
    NOW,
    QUEUE_EXAMPLES,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    with_usage,
)

EXAMPLES = settings(
    max_examples=QUEUE_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
USERS = (ANN, BOB)
GRACE = 30


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[AgentState], list[RunningSession], list[PendingSession]]:
    """Return agents, sessions that run on them, and pending sessions."""
    agents = [
        agent(f"a{n}", cpu=draw(st.sampled_from([4, 8])), gpus=draw(st.sampled_from([0, 2])))
        for n in range(draw(st.integers(1, 3)))
    ]
    placer = Placer(agents, Policy.BEST_FIT)
    sessions = []
    for n in range(draw(st.integers(0, 8))):
        placements = placer.place(placer.prepare(draw(requests())))
        if placements is None:
            continue
        total: dict[str, int] = {}
        for place in placements:
            for slot, amount in [
                *place.slots.items(),
                *((d.slot, d.amount) for d in place.devices),
            ]:
                total[slot] = total.get(slot, 0) + amount
        ends = draw(st.sampled_from([None, None, 10, 1000]))
        sessions.append(
            RunningSession(
                f"r{n}",
                "main",
                (draw(st.sampled_from(USERS)),),
                placements,
                ResourceSlots(total),
                NOW - timedelta(seconds=draw(st.sampled_from([10, 100, 5000]))),
                None if ends is None else NOW + timedelta(seconds=ends),
                priority=draw(st.sampled_from([1, 5, 10])),
                job_priority=draw(st.sampled_from([0, 1])),
                is_preemptible=draw(st.sampled_from([True, True, False])),
                is_running=draw(st.sampled_from([True, True, False])),
            )
        )
    pending = [
        PendingSession(
            f"s{n}",
            n,
            draw(requests()),
            (draw(st.sampled_from(USERS)),),
            priority=draw(st.sampled_from([5, 10, 20])),
            job_priority=draw(st.sampled_from([0, 1])),
        )
        for n in range(draw(st.integers(1, 4)))
    ]
    return placer.agents(), sessions, pending


@st.composite
def requests(draw: st.DrawFn) -> Request:
    device = draw(
        st.sampled_from(
            [{}, {}, {"cuda_device": "1"}, {"cuda_device": "2"}, {"cuda_shares": "0.5"}]
        )
    )
    amounts = slots(cpu=draw(st.sampled_from(["1", "2", "4", "8"])), **device)
    return Request(
        amounts,
        "main",
        "x86_64",
        kernels=draw(st.sampled_from([1, 1, 2])),
        mode=draw(st.sampled_from(Mode)),
    )


@st.composite
def options(draw: st.DrawFn) -> PreemptionOptions:
    return PreemptionOptions(
        enabled=True,
        preemptible_priority=draw(st.sampled_from([1, 5, 10])),
        order=draw(st.sampled_from(VictimOrder)),
        min_runtime_seconds=draw(st.sampled_from([0, 50])),
        over_fair_share=draw(st.booleans()),
        grace_seconds=GRACE,
    )


def may_be_preempted(chosen: PreemptionOptions, victim: RunningSession, by: PendingSession) -> bool:
    """Return whether the rules can allow a preemption. The dominant shares are not compared."""
    is_lower = victim.priority < by.priority
    is_own = victim.scopes == by.scopes and victim.priority == by.priority
    return (
        victim.is_preemptible
        and victim.is_running
        and victim.priority <= chosen.preemptible_priority
        and NOW - victim.started_at >= timedelta(seconds=chosen.min_runtime_seconds)
        and (
            is_lower
            or (is_own and victim.job_priority < by.job_priority)
            or (chosen.over_fair_share and victim.priority == by.priority)
        )
    )


def fits(
    agents: Iterable[AgentState],
    released: Iterable[RunningSession],
    taken: Iterable[Placement],
    wanted: Request,
) -> bool:
    """Return whether a request fits if some sessions have ended and some placements are taken."""
    placer = Placer(list(agents), Policy.BEST_FIT)
    for session in released:
        placer.release(session.placements)
    placer.allocate(taken)
    return placer.fits(placer.prepare(wanted))


@EXAMPLES
@given(groups(), options(), st.sampled_from(Backfill))
def test_victims_are_allowed_sufficient_and_minimal(
    group: tuple[list[AgentState], list[RunningSession], list[PendingSession]],
    chosen: PreemptionOptions,
    backfill: Backfill,
) -> None:
    agents, sessions, pending = group
    state = GroupState("main", placement=Policy.BEST_FIT, backfill=backfill, preemption=chosen)
    queue = Queue(Snapshot(pending, agents, groups={"main": state}, running=sessions, now=NOW))
    result = queue.run(NOW)
    by_id = {session.id: session for session in sessions}
    waiting = {session.id: session for session in pending}
    started = [p for d in result.decisions for p in d.placements]
    soon = [s for s in sessions if s.ends_at and s.ends_at <= NOW + timedelta(seconds=GRACE)]
    all_victims = [key for p in result.preemptions for key in p.plan.victim_ids]
    assert len(all_victims) == len(set(all_victims))

    for preemption in result.preemptions:
        by, plan = waiting[preemption.session_id], preemption.plan
        assert plan.victims
        victims = [by_id[key] for key in plan.victim_ids]
        assert all(may_be_preempted(chosen, victim, by) for victim in victims)
        # The session fits when the victims (and sessions that end before them) have ended.
        others = [p for o in result.preemptions if o is not preemption for p in o.plan.placements]
        freed = [v for o in result.preemptions for v in map(by_id.get, o.plan.victim_ids) if v]
        released = [*freed, *(s for s in soon if s not in freed)]
        assert fits(agents, released, [*started, *others], by.request)
        # The victims are minimal: the session does not fit if any one of them keeps running.
        # This search ignores the reservation that another waiting session may have.
        if len(pending) - len(result.decisions) == 1:
            for victim in victims:
                rest = [s for s in released if s is not victim]
                if victim not in soon:
                    assert not fits(agents, rest, started, by.request)
    _check_reservation(result, agents, sessions, waiting, started)
    if not result.preemptions and len(pending) == 1 and not result.decisions:
        # The naive search finds no victims either.
        (only,) = pending
        allowed = [s for s in sessions if may_be_preempted(without_fair_share(chosen), s, only)]
        needs = not fits(agents, soon, (), only.request)
        rest = [s for s in allowed if s not in soon]
        assert not (needs and fits(agents, [*rest, *soon], (), only.request))


def without_fair_share(chosen: PreemptionOptions) -> PreemptionOptions:
    """Return the options without ``over_fair_share``, which the naive search ignores."""
    return replace(chosen, over_fair_share=False)


def _check_reservation(
    result: PassResult,
    agents: list[AgentState],
    sessions: list[RunningSession],
    waiting: dict[str, PendingSession],
    started: list[Placement],
) -> None:
    """Check that the plans do not delay the reserved start of another session."""
    planned = {preemption.session_id for preemption in result.preemptions}
    for reservation in result.reservations:
        if reservation.session_id in planned or reservation.starts_at is None:
            continue
        ended = [s for s in sessions if s.ends_at and s.ends_at <= reservation.starts_at]
        victims = {key for p in result.preemptions for key in p.plan.victim_ids}
        freed = [s for s in sessions if s.id in victims and s not in ended]
        held = [placement for p in result.preemptions for placement in p.plan.placements]
        reserved = waiting[reservation.session_id]
        assert fits(agents, [*ended, *freed], [*started, *held], reserved.request)


@EXAMPLES
@given(
    st.lists(
        st.tuples(
            st.sampled_from([BOB, BOB, BOB, ANN]),
            st.sampled_from([1, 2, 3]),
            st.sampled_from([5, 5, 5, 1]),
        ),
        min_size=12,
        max_size=16,
    ),
    st.lists(st.tuples(st.just(ANN), st.sampled_from([2, 3, 4])), min_size=2, max_size=6),
    st.sampled_from(VictimOrder),
)
def test_users_of_victims_by_fair_share_keep_the_larger_share(
    holding: list[tuple[Scope, int, int]],
    waiting: list[tuple[Scope, int]],
    order: VictimOrder,
) -> None:
    """The shares are compared after each plan, as if all earlier plans were carried out."""
    cores, sessions = 16, []
    held: Counter[Scope] = Counter()
    host = agent("a", cpu=cores)
    for number, (user, cpu, priority) in enumerate(holding):
        if held.total() + cpu > cores:
            break
        held[user] += cpu
        sessions.append(running(f"r{number}", user, "a", slots(cpu=str(cpu)), priority=priority))
        host = with_usage(host, sessions[-1].slots)
    pending = [
        pending_session(number, user, request(cpu=str(cpu)), priority=5)
        for number, (user, cpu) in enumerate(waiting)
    ]
    fair = PreemptionOptions(enabled=True, order=order, over_fair_share=True)
    result = Queue(snapshot(pending, [host], running=sessions, group={"preemption": fair})).run(NOW)
    victims = {session.id: session for session in sessions}
    by_id = {session.id: session for session in pending}
    for decision in result.decisions:
        held[by_id[decision.session_id].scopes[0]] += cores_of(by_id[decision.session_id])
    for preemption in result.preemptions:
        by = by_id[preemption.session_id]
        held[by.scopes[0]] += cores_of(by)
        for key, _ in preemption.plan.victims:
            held[victims[key].scopes[0]] -= victims[key].slots["cpu"] // 1000
        for key, rule in preemption.plan.victims:
            if rule is Rule.FAIR_SHARE:
                assert held[victims[key].scopes[0]] >= held[by.scopes[0]]


def cores_of(session: PendingSession) -> int:
    return session.request.slots["cpu"] // 1000


@EXAMPLES
@given(groups(), options())
def test_session_starts_after_its_victims_have_ended_one_by_one(
    group: tuple[list[AgentState], list[RunningSession], list[PendingSession]],
    chosen: PreemptionOptions,
) -> None:
    """The victims return to the queue, but do not take the resources of the session."""
    agents, sessions, pending = group
    state = GroupState("main", placement=Policy.BEST_FIT, preemption=chosen)
    queue = Queue(Snapshot(pending, agents, groups={"main": state}, running=sessions, now=NOW))
    result = queue.run(NOW)
    by_id = {session.id: session for session in sessions}
    now = NOW
    for preemption in result.preemptions:
        for key in preemption.plan.victim_ids:
            now += timedelta(seconds=GRACE)
            victim = by_id[key]
            ended = [s.id for s in sessions if s.ends_at and s.ends_at <= now and s.id != key]
            back = PendingSession(
                key,
                1000,
                Request(slots(cpu="1"), "main", "x86_64"),
                victim.scopes,
                priority=victim.priority,
            )
            queue.apply(Changes(removed=[key, *ended], pending=[back]))
            queue.run(now)
    for preemption in result.preemptions:
        assert queue.pending(preemption.session_id) is None, "the session has not started"
