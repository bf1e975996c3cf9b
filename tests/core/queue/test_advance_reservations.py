"""Advance reservations: other sessions run on reserved agents only before and after the period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.errors import Conflict, InvalidRequest
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.advance_reservations import (
    Booking,
    HeldAgents,
    check_period,
    choose_agents,
)
from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.estimates.explainer import explain_one
from bai_services.core.scheduling.queue import Backfill, Changes, PassResult, PendingSession, Queue
from bai_services.core.scheduling.reservation_states import ReservationPhase, phase_of

from .factories import ANN, BOB, NOW, agent, pending_session, request, snapshot, started_sessions

HOUR = timedelta(hours=1)
MINE, YOURS = (Scope(ScopeKind.PROJECT, name) for name in ("mine", "yours"))
AGENTS = ("a", "b", "c")
CORES = 4


def held(
    start: float, end: float, *agents: str, project: Scope = MINE, key: str = "r1"
) -> HeldAgents:
    return HeldAgents(
        key, project.id, NOW + start * HOUR, NOW + end * HOUR, frozenset(agents), project
    )


def codes(result: PassResult, session_id: str) -> list[str]:
    return [each["coded"]["code"] for each in result.reasons[session_id]]


def test_other_sessions_wait_for_the_end_of_a_reservation_and_show_the_reason() -> None:
    queue = Queue(snapshot([pending_session(1)], [agent()], group={"held": (held(-1, 2, "a"),)}))
    result = queue.run(NOW)
    assert codes(result, "s1") == ["reserved-until"]
    assert result.reasons["s1"][0]["check"] == "advance-reservation"
    assert result.wake_at == NOW + 2 * HOUR
    found = explain_one(queue, "s1")
    assert found is not None
    assert found.estimate.starts_at == NOW + 2 * HOUR
    assert started_sessions(queue.run(NOW + 2 * HOUR)) == ["s1"]


def test_only_sessions_that_end_in_time_start_before_a_reservation() -> None:
    sessions = [
        pending_session(1, max_run_seconds=3 * 3600),
        pending_session(2, max_run_seconds=2 * 3600),
        pending_session(3),
        pending_session(4, scopes=(ANN, MINE)),
    ]
    queue = Queue(snapshot(sessions, [agent()], group={"held": (held(2, 4, "a"),)}))
    result = queue.run(NOW)
    assert started_sessions(result) == ["s2", "s4"]
    assert codes(result, "s1") == codes(result, "s3") == ["reserved-ahead"]


def test_named_reservation_restricts_a_session_to_its_agents() -> None:
    big = request(cpu="8")
    sessions = [
        pending_session(n, wanted=big, scopes=(ANN, MINE), reservation_id="r1") for n in (1, 2)
    ]
    queue = Queue(snapshot(sessions, [agent("a"), agent("b")], group={"held": (held(0, 4, "b"),)}))
    result = queue.run(NOW)
    assert [(d.session_id, d.placement.agent_id) for d in result.decisions] == [("s1", "b")]
    assert "only-reserved-agents" in codes(result, "s2")


def test_only_named_users_may_use_a_reservation() -> None:
    one = replace(held(-1, 2, "a"), users=frozenset({ANN}))
    sessions = [pending_session(1, scopes=(BOB, MINE)), pending_session(2, scopes=(ANN, MINE))]
    queue = Queue(snapshot(sessions, [agent()], group={"held": (one,)}))
    assert started_sessions(queue.run(NOW)) == ["s2"]


hours = st.integers(1, 6)
names = st.sets(st.sampled_from(AGENTS), min_size=1, max_size=2)


@st.composite
def bookings(draw: st.DrawFn) -> tuple[HeldAgents, ...]:
    """Return reservations whose periods do not overlap on any agent."""
    made: list[HeldAgents] = []
    for number in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, 5))
        one = held(
            start,
            start + draw(hours),
            *draw(names),
            project=draw(st.sampled_from((MINE, YOURS))),
            key=f"r{number}",
        )
        if all(
            not (b.agents & one.agents and b.starts_at < one.ends_at and one.starts_at < b.ends_at)
            for b in made
        ):
            made.append(one)
    return tuple(made)


@st.composite
def jobs(draw: st.DrawFn) -> list[PendingSession]:
    return [
        pending_session(
            n,
            wanted=request(cpu=str(draw(st.integers(1, CORES)))),
            scopes=(ANN, draw(st.sampled_from((MINE, YOURS)))),
            max_run_seconds=draw(st.none() | hours.map(lambda n: n * 3600)),
        )
        for n in range(draw(st.integers(1, 8)))
    ]


def may_start(one: HeldAgents, pending: PendingSession, now: datetime) -> bool:
    """Oracle: whether a session may start on the agents of a reservation."""
    if one.project in pending.scopes or now >= one.ends_at:
        return True
    limit = pending.max_run_seconds
    return limit is not None and now + timedelta(seconds=limit) <= one.starts_at


def allowed_agents(
    reservations: Sequence[HeldAgents], pending: PendingSession, now: datetime
) -> set[str]:
    return {
        name
        for name in AGENTS
        if all(may_start(one, pending, now) for one in reservations if name in one.agents)
    }


@settings(deadline=None)
@given(bookings(), jobs(), st.sampled_from((Backfill.AGGRESSIVE, Backfill.RESERVING)))
def test_other_sessions_end_before_a_reservation_starts(
    reservations: tuple[HeldAgents, ...], sessions: list[PendingSession], backfill: Backfill
) -> None:
    """Sessions run until their time limit, or forever if they have none; all agents are empty at
    first.
    """
    group = {"held": reservations, "backfill": backfill}
    queue = Queue(snapshot(sessions, [agent(n, cpu=CORES) for n in AGENTS], group=group))
    by_id = {s.id: s for s in sessions}
    on: dict[str, tuple[str, datetime | None]] = {}
    for hour in range(14):
        now = NOW + hour * HOUR
        over = [key for key, (_, end) in on.items() if end is not None and end <= now]
        for key in over:
            del on[key]
        if over:
            queue.apply(Changes(removed=over))
        result = queue.run(now)
        free = {name: CORES * 1000 for name in AGENTS}
        for key, (name, _) in on.items():
            free[name] -= by_id[key].request.slots["cpu"]
        for decision in result.decisions:
            pending, name = by_id[decision.session_id], decision.placement.agent_id
            assert name in allowed_agents(reservations, pending, now)
            limit = pending.max_run_seconds
            on[pending.id] = name, None if limit is None else now + timedelta(seconds=limit)
            free[name] -= pending.request.slots["cpu"]
        assert min(free.values()) >= 0
        for one in reservations:
            if one.starts_at <= now < one.ends_at:
                on_reserved = [k for k, (name, _) in on.items() if name in one.agents]
                assert all(one.project in by_id[key].scopes for key in on_reserved)
        if backfill is Backfill.AGGRESSIVE:
            for key in result.reasons:
                cpu = by_id[key].request.slots["cpu"]
                allowed = allowed_agents(reservations, by_id[key], now)
                assert all(free[name] < cpu for name in allowed)


@given(
    st.lists(st.tuples(names, st.integers(0, 6), hours), max_size=4),
    st.integers(1, 3),
    st.integers(0, 6),
    hours,
)
def test_reserved_agents_are_never_booked_twice(
    booked: list[tuple[set[str], int, int]], nodes: int, start: int, length: int
) -> None:
    existing = [
        Booking(frozenset(on), NOW + at * HOUR, NOW + (at + n) * HOUR) for on, at, n in booked
    ]
    period = NOW + start * HOUR, NOW + (start + length) * HOUR
    taken = {
        name
        for booking in existing
        for name in booking.agents
        if any(
            booking.starts_at <= NOW + hour * HOUR < booking.ends_at
            for hour in range(start, start + length)
        )
    }
    free = set(AGENTS) - taken
    arguments = {"nodes": nodes, "resources": ResourceSlots({"cpu": 4000}), "period": period}
    agents = [agent(name) for name in AGENTS]
    try:
        chosen = choose_agents(agents, existing, {}, **arguments)
    except Conflict as error:
        assert len(free) < nodes
        assert error.details["available"] == len(free)
    else:
        assert len(chosen) == nodes
        assert set(chosen) <= free


def test_suitable_agents_that_are_free_in_time_come_first() -> None:
    agents = [agent("a", gpus=8), agent("b", gpus=2), agent("c", gpus=2), agent("d")]
    busy = {"b": None, "c": NOW + HOUR}
    period = NOW + HOUR, NOW + 2 * HOUR
    wanted = ResourceSlots({"cuda.device": 2})
    chosen = [
        choose_agents(agents, [], busy, nodes=n, resources=wanted, period=period) for n in (1, 2, 3)
    ]
    assert chosen == [("c",), ("a", "c"), ("a", "b", "c")]
    with pytest.raises(Conflict, match="only 3 of 3 suitable agents"):
        choose_agents(agents, [], busy, nodes=4, resources=wanted, period=period)


@pytest.mark.parametrize(
    ("start", "end", "grace"),
    [
        (2, 1, 60),
        (-2, -1, 60),
        # The period began six minutes ago.
        (-0.1, 1, 60),
        (24 * 91, 24 * 92, 60),
        (1, 24 * 40, 60),
        (1, 2, 5),
    ],
)
def test_invalid_periods_are_refused(start: float, end: float, grace: int) -> None:
    with pytest.raises(InvalidRequest):
        check_period(NOW + start * HOUR, NOW + end * HOUR, NOW, grace)


def test_reservation_from_now_on_may_come_from_a_slow_clock() -> None:
    check_period(NOW - timedelta(minutes=5), NOW + HOUR, NOW, 60)
    message = r"starts_at is in the past \(.+\); it can be at most 5 minutes ago"
    with pytest.raises(InvalidRequest, match=message):
        check_period(NOW - timedelta(minutes=5, seconds=1), NOW + HOUR, NOW, 60)


@pytest.mark.parametrize(
    "hours, is_used, phase",
    [
        pytest.param(-0.1, False, ReservationPhase.AHEAD, id="before the start"),
        pytest.param(0, False, ReservationPhase.UNUSED, id="at the start"),
        pytest.param(1, True, ReservationPhase.USED, id="a session of a member runs"),
        pytest.param(2, True, ReservationPhase.ENDED, id="at the end"),
        pytest.param(3, False, ReservationPhase.ENDED, id="after the end, never used"),
    ],
)
def test_phase_of_a_reservation(hours: float, is_used: bool, phase: ReservationPhase) -> None:
    used_at = NOW if is_used else None
    assert phase_of(NOW, NOW + 2 * HOUR, used_at, NOW + hours * HOUR) is phase
