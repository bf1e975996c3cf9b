"""Reservations in simulated queues with caps.

`BAI_QUEUE_EXAMPLES` sets the number of generated queues for each property.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bai_services.core.scheduling.caps import Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.placement import AgentState, Mode, Policy, Request
from bai_services.core.scheduling.queue import (
    Backfill,
    Certainty,
    Changes,
    GroupState,
    PassResult,
    PendingSession,
    Queue,
    Snapshot,
)

from .factories import NOW, QUEUE_EXAMPLES, agent, slots

GROUPS = ("main", "side")
USERS = tuple(Scope(ScopeKind.USER, name) for name in "abc")
EXAMPLES = settings(
    max_examples=QUEUE_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Arrival:
    """A pending session that is created at second ``at`` and runs for ``seconds``."""

    pending: PendingSession
    at: int
    seconds: int


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    sessions = []
    at = 0
    for n in range(draw(st.integers(1, 9))):
        at += draw(st.sampled_from([0, 0, 1, 5, 20]))
        device = draw(
            st.sampled_from(
                [{}, {"cuda_device": "1"}, {"cuda_device": "2"}, {"cuda_shares": "0.3"},
                 {"cuda_shares": "0.6"}, {"cuda_shares": "1.5"}]
            )
        )  # fmt: skip
        request = Request(
            slots(cpu=draw(st.sampled_from(["0.5", "1", "2", "4"])), **device),
            draw(st.sampled_from(["main", "main", "side"])),
            "x86_64",
            kernels=draw(st.sampled_from([1, 1, 1, 2, 3])),
            mode=draw(st.sampled_from(Mode)),
        )
        seconds = draw(st.sampled_from([1, 5, 10, 30, 100]))
        limit = seconds * draw(st.sampled_from([1, 1, 2, 4]))
        user = draw(st.sampled_from(USERS))
        sessions.append(
            Arrival(
                PendingSession(f"s{n:02d}", n, request, (user,), max_run_seconds=limit), at, seconds
            )
        )
    return sessions


@st.composite
def clusters(draw: st.DrawFn) -> list[AgentState]:
    return [
        agent(f"a{n}", cpu=draw(st.sampled_from([4, 8])), gpus=draw(st.integers(0, 3)),
              resource_group=draw(st.sampled_from(["main", "main", "side"])))
        for n in range(draw(st.integers(1, 4)))
    ]  # fmt: skip


caps_of = st.dictionaries(st.sampled_from(USERS), st.integers(1, 3), max_size=2)


@dataclass
class Simulation:
    """The outcome of a simulation.

    ``started`` maps each started session to the second of its start. ``promises`` maps each
    reserved session to the start that was promised first and still holds. ``results`` contains the
    second and the result of each pass.
    """

    started: dict[str, int] = field(default_factory=dict)
    promises: dict[str, datetime] = field(default_factory=dict)
    results: list[tuple[int, PassResult]] = field(default_factory=list)


def simulate(
    arrivals: list[Arrival],
    agents: list[AgentState],
    caps: dict[Scope, int],
    backfill: Backfill = Backfill.RESERVING,
    policy: Policy = Policy.PACK,
) -> Simulation:
    """Simulate arrivals, starts and ends until no event remains.

    When a session starts, the promised starts of the pending sessions behind it in its group are
    deleted. These promises were made only because a cap excluded the started session at that time.
    """
    queue = Queue(
        Snapshot(
            [],
            agents,
            caps={user: ScopeCaps(user, user.id, max_sessions=n) for user, n in caps.items()},
            groups={name: GroupState(name, placement=policy, backfill=backfill) for name in GROUPS},
            now=NOW,
        )
    )
    of = {c.pending.id: c for c in arrivals}
    events: list[tuple[int, int, str]] = []
    for c in arrivals:
        heappush(events, (c.at, 1, c.pending.id))
    simulation = Simulation()
    while events:
        second = events[0][0]
        removed, new = [], []
        while events and events[0][0] == second:
            _, is_new, session_id = heappop(events)
            if is_new:
                new.append(of[session_id].pending)
            else:
                removed.append(session_id)
        queue.apply(Changes(removed=removed, pending=new))
        result = queue.run(NOW + timedelta(seconds=second))
        simulation.results.append((second, result))
        for decision in result.decisions:
            simulation.started[decision.session_id] = second
            heappush(events, (second + of[decision.session_id].seconds, 0, decision.session_id))
            _void_promises(simulation, of, decision.session_id)
        for reservation in result.reservations:
            assert reservation.certainty is Certainty.KNOWN
            assert reservation.starts_at is not None
            simulation.promises.setdefault(reservation.session_id, reservation.starts_at)
    return simulation


def _void_promises(simulation: Simulation, of: dict[str, Arrival], session_id: str) -> None:
    """Delete the promised starts of the pending sessions behind a started session in its group."""
    group = of[session_id].pending.request.resource_group
    for other in list(simulation.promises):
        is_behind = other > session_id and of[other].pending.request.resource_group == group
        if is_behind and other not in simulation.started:
            del simulation.promises[other]


@EXAMPLES
@given(arrivals(), clusters(), caps_of)
def test_no_reserved_session_starts_later_than_promised(
    arrivals: list[Arrival], agents: list[AgentState], caps: dict[Scope, int]
) -> None:
    simulation = simulate(arrivals, agents, caps)
    for session_id, promised in simulation.promises.items():
        assert session_id in simulation.started
        assert NOW + timedelta(seconds=simulation.started[session_id]) <= promised


@EXAMPLES
@given(arrivals(), clusters(), caps_of, st.sampled_from(Backfill))
def test_every_session_that_fits_its_empty_group_starts_eventually(
    arrivals: list[Arrival], agents: list[AgentState], caps: dict[Scope, int], backfill: Backfill
) -> None:
    simulation = simulate(arrivals, agents, caps, backfill)
    for c in arrivals:
        group = c.pending.request.resource_group
        alone = Snapshot([c.pending], agents, groups={group: GroupState(group)}, now=NOW)
        can_start = bool(Queue(alone).run(NOW).decisions)
        assert (c.pending.id in simulation.started) is can_start


@EXAMPLES
@given(arrivals(), clusters(), caps_of, st.sampled_from(Backfill), st.sampled_from(Policy))
def test_simulation_is_deterministic(
    arrivals: list[Arrival],
    agents: list[AgentState],
    caps: dict[Scope, int],
    backfill: Backfill,
    policy: Policy,
) -> None:
    one, two = (simulate(arrivals, agents, caps, backfill, policy) for _ in range(2))
    assert [r.decisions for _, r in one.results] == [r.decisions for _, r in two.results]
    assert one.promises == two.promises


@pytest.mark.parametrize("first", GROUPS)
def test_quota_of_a_reserved_session_is_withheld_from_the_other_group(first: str) -> None:
    """The result is the same for both orders in which the groups are scheduled."""
    other = next(name for name in GROUPS if name != first)
    whole = Request(slots(cpu="4"), first, "x86_64")
    small = Request(slots(cpu="1"), other, "x86_64")
    arrivals = [
        Arrival(PendingSession("s00", 0, whole, (USERS[0],), max_run_seconds=50), 0, 50),
        Arrival(PendingSession("s01", 1, whole, (USERS[1],), max_run_seconds=50), 0, 50),
        Arrival(PendingSession("s02", 2, small, (USERS[1],), max_run_seconds=500), 10, 500),
    ]
    agents = [agent("a", cpu=4, resource_group=first), agent("b", cpu=4, resource_group=other)]
    simulation = simulate(arrivals, agents, {USERS[1]: 1})
    assert simulation.started == {"s00": 0, "s01": 50, "s02": 100}
