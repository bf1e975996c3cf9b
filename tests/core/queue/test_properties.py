"""Invariants of generated queues: caps, order, no starvation, release of resources."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.scheduling.caps import Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.placement import AgentState, Mode, Policy, Request
from bai_services.core.scheduling.queue import (
    Backfill,
    Changes,
    GroupState,
    Order,
    PendingSession,
    Queue,
    RunningSession,
    Snapshot,
    run_pass,
)
from bai_services.core.scheduling.queue.shape import session_slots

from .factories import NOW, agent, slots

USERS = tuple(Scope(ScopeKind.USER, name) for name in "abc")
LABS = tuple(Scope(ScopeKind.PROJECT, name) for name in "xy")
EXAMPLES = settings(max_examples=60, deadline=None)

requests = st.builds(
    lambda cpu, share, kernels, mode, group: Request(
        slots(cpu=str(cpu), **share), group, "x86_64", kernels=kernels, mode=mode
    ),
    st.integers(1, 6),
    st.sampled_from([{}, {}, {"cuda_shares": "0.4"}, {"cuda_device": "1"}]),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from(Mode),
    st.sampled_from(["main", "main", "side"]),
)


@st.composite
def queues(draw: st.DrawFn) -> Snapshot:
    """Draw two groups with up to 4 agents, up to 12 sessions, and caps of users and projects."""
    pending = [
        PendingSession(
            f"s{n}",
            n,
            draw(requests),
            (draw(st.sampled_from(LABS)), draw(st.sampled_from(USERS))),
            priority=draw(st.sampled_from([10, 10, 20])),
            max_run_seconds=draw(st.sampled_from([None, 60, 600])),
        )
        for n in range(draw(st.integers(0, 12)))
    ]
    agents = [
        agent(f"a{n}", gpus=draw(st.integers(0, 2)), resource_group=group)
        for n, group in enumerate(draw(st.lists(st.sampled_from(["main", "side"]), max_size=4)))
    ]
    caps = {
        scope: ScopeCaps(scope, scope.id, {"cpu": draw(st.integers(0, 15)) * 1000}, False, count)
        for scope in (*USERS, *LABS)
        if (count := draw(st.sampled_from([None, None, 1, 2, 5]))) is not None
    }
    groups = {
        name: GroupState(
            name,
            order=draw(st.sampled_from(Order)),
            placement=Policy.PACK,
            backfill=draw(st.sampled_from(Backfill)),
        )
        for name in ("main", "side")
    }
    return Snapshot(pending, agents, caps=caps, groups=groups, now=NOW)


def counted_usage(world: Snapshot, ids: list[str]) -> Counter[tuple[Scope, str]]:
    """Return the usage of sessions by scope and slot, and the number of sessions by scope."""
    found: Counter[tuple[Scope, str]] = Counter()
    for session in world.pending:
        for scope in session.scopes if session.id in ids else ():
            found[scope, "sessions"] += 1
            for slot, amount in session_slots(session).items():
                found[scope, slot] += amount
    return found


@EXAMPLES
@given(queues())
def test_no_scope_exceeds_its_cap(world: Snapshot) -> None:
    queue = Queue(world)
    ids = [d.session_id for d in queue.run(NOW).decisions]
    used = counted_usage(world, ids)
    for (scope, slot), amount in used.items():
        assert queue.quotas.used(scope)[slot] == amount
        caps = world.caps.get(scope)
        limit = None if caps is None else caps.limit(slot)
        assert limit is None or amount <= limit


@EXAMPLES
@given(queues())
def test_no_agent_or_device_is_over_allocated(world: Snapshot) -> None:
    queue = Queue(world)
    result = queue.run(NOW)
    wanted = {session.id: session.request for session in world.pending}
    for decision in result.decisions:
        asked = wanted[decision.session_id]
        assert len(decision.placements) == asked.kernels
        if asked.mode == Mode.SINGLE_NODE:
            assert len({p.agent_id for p in decision.placements}) == 1
    for state in agents_of(queue):
        assert all(0 <= n <= state.capacity[slot] for slot, n in state.used.items())
        assert all(0 <= d.used <= d.capacity for d in state.devices)


def agents_of(queue: Queue) -> list[AgentState]:
    return [a for group in queue.groups() for a in queue.group_queue(group).placer.agents()]


@EXAMPLES
@given(queues())
def test_every_session_starts_once_or_has_reasons(world: Snapshot) -> None:
    result = run_pass(world)
    ids = [d.session_id for d in result.decisions]
    assert len(set(ids)) == len(ids)
    assert sorted([*ids, *result.reasons]) == sorted(session.id for session in world.pending)
    for reasons in result.reasons.values():
        assert any(not reason["passed"] for reason in reasons)
        assert all(reason["message"] for reason in reasons)


@EXAMPLES
@given(queues(), st.randoms())
def test_equal_snapshots_give_equal_decisions(world: Snapshot, rng: st.Random) -> None:
    """The decisions do not depend on the order in which the snapshot lists sessions and agents."""
    pending, agents = list(world.pending), list(world.agents)
    rng.shuffle(pending)
    rng.shuffle(agents)
    other = Snapshot(pending, agents, caps=world.caps, groups=world.groups, now=NOW)
    one, two = run_pass(world), run_pass(other)
    assert one.decisions == two.decisions
    assert dict(one.reasons) == dict(two.reasons)


@EXAMPLES
@given(queues())
def test_second_pass_at_the_same_time_changes_nothing(world: Snapshot) -> None:
    """The second pass starts no session and reports the same reasons."""
    queue = Queue(world)
    first = dict(queue.run(NOW).reasons)
    queue.apply(Changes(groups=list(world.groups.values())))
    second = queue.run(NOW)
    assert not second.decisions
    assert dict(second.reasons) == first


@EXAMPLES
@given(queues())
def test_end_of_sessions_releases_exactly_what_was_allocated(world: Snapshot) -> None:
    queue = Queue(world)
    before = agents_of(queue)
    ids = [d.session_id for d in queue.run(NOW).decisions]
    queue.apply(Changes(removed=ids))
    assert agents_of(queue) == before
    assert not any(queue.quotas.all_usage().values())


@EXAMPLES
@given(queues())
def test_no_session_overtakes_an_equal_session_that_is_ahead(world: Snapshot) -> None:
    """In fifo and lifo, the second of two equal sessions starts only if the first one starts."""
    result = run_pass(world)
    ids = {d.session_id for d in result.decisions}
    for name, state in world.groups.items():
        if state.order not in (Order.FIFO, Order.LIFO):
            continue
        sign = -1 if state.order is Order.LIFO else 1
        in_group = [session for session in world.pending if session.request.resource_group == name]
        for session in in_group:
            for other in in_group:
                alike = (session.request, session.scopes, session.max_run_seconds) == (
                    other.request, other.scopes, other.max_run_seconds)  # fmt: skip
                before = (-session.priority, sign * session.sequence) < (
                    -other.priority, sign * other.sequence)  # fmt: skip
                if alike and before and other.id in ids:
                    assert session.id in ids


@EXAMPLES
@given(queues())
def test_positions_are_consecutive_and_follow_the_priority(world: Snapshot) -> None:
    queue = Queue(Snapshot(world.pending, (), groups=world.groups, now=NOW))
    queue.run(NOW)
    explainer = Explainer(queue)
    for name in world.groups:
        in_group = {
            session.id: session
            for session in world.pending
            if session.request.resource_group == name
        }
        positions = explainer.positions(name)
        assert sorted(positions.values()) == list(range(1, len(in_group) + 1))
        ordered = sorted(in_group.values(), key=lambda session: positions[session.id])
        assert [session.priority for session in ordered] == sorted(
            (session.priority for session in ordered), reverse=True
        )


@settings(max_examples=25, deadline=None)
@given(queues(), st.sampled_from([Backfill.OFF, Backfill.RESERVING]))
def test_no_session_starves_behind_small_sessions_that_keep_arriving(
    world: Snapshot, mode: Backfill
) -> None:
    """Each session that fits its empty group starts within an hour.

    A small session arrives every minute.
    """
    groups = {name: GroupState(name, placement=Policy.PACK, backfill=mode) for name in world.groups}
    world = Snapshot(world.pending, world.agents, groups=groups, now=NOW)
    queue = Queue(world)
    left = {
        session.id
        for session in world.pending
        if queue.group_queue(session.request.resource_group).placer.fits_when_empty(
            queue.group_queue(session.request.resource_group).placer.prepare(session.request)
        )
    }
    ends: dict[str, int] = {}
    for minute in range(60):
        now = NOW + timedelta(minutes=minute)
        small = Request(slots(), "main" if minute % 2 else "side", "x86_64")
        new = PendingSession(f"new{minute}", 100 + minute, small, (USERS[0],), priority=10)
        removed = [session for session, end in ends.items() if end <= minute]
        for session in removed:
            del ends[session]
        queue.apply(Changes(pending=[new], removed=removed))
        for decision in queue.run(now).decisions:
            left.discard(decision.session_id)
            ends[decision.session_id] = minute + 3
    assert not left


def test_running_sessions_match_their_decisions() -> None:
    wanted = Request(slots(), "main", "x86_64", kernels=2)
    queue = Queue(
        Snapshot(
            [PendingSession("s1", 1, wanted, (USERS[0],), max_run_seconds=60)], [agent()], now=NOW
        )
    )
    (decision,) = queue.run(NOW).decisions
    assert queue.running("main") == [
        RunningSession(
            "s1",
            "main",
            (USERS[0],),
            decision.placements,
            session_slots(PendingSession("s1", 1, wanted, (USERS[0],))),
            NOW,
            NOW + timedelta(seconds=60),
            is_running=False,
        )
    ]
