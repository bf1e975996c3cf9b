"""Reservations of parts of agents: only sessions of members use the booked amounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.device_sharing import Sharing
from bai_services.core.cluster.devices import Device
from bai_services.core.scheduling.advance_reservations import HeldAgents
from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.estimates.explainer import explain_one
from bai_services.core.scheduling.placement import AgentState, Request
from bai_services.core.scheduling.queue import (
    Backfill,
    Changes,
    PassResult,
    PendingSession,
    Queue,
)

from .factories import (
    ANN,
    NOW,
    QUEUE_EXAMPLES,
    agent,
    pending_session,
    request,
    slots,
    snapshot,
    started_sessions,
)

HOUR = timedelta(hours=1)
MINE, YOURS = (Scope(ScopeKind.PROJECT, name) for name in ("mine", "yours"))
OTHERS = Scope(ScopeKind.PROJECT, "others")


def part(
    start: float, end: float, *agents: str, key: str = "r1", project: Scope = MINE, **booked: str
) -> HeldAgents:
    """Return an approved reservation of ``booked`` amounts on each agent."""
    amounts = slots(**{"cpu": "0", "mem": "0", **booked})
    return HeldAgents(
        key, project.id, NOW + start * HOUR, NOW + end * HOUR, frozenset(agents or ("a",)), project,
        booked=amounts,
    )  # fmt: skip


def session(
    n: int, project: Scope = OTHERS, hours: int | None = None, **texts: str
) -> PendingSession:
    return pending_session(
        n,
        wanted=request(**texts),
        scopes=(ANN, project),
        max_run_seconds=None if hours is None else hours * 3600,
    )


def queue_of(
    sessions: list[PendingSession], *held: HeldAgents, gpus: int = 4, **group: object
) -> Queue:
    return Queue(snapshot(sessions, [agent(gpus=gpus)], group={"held": held, **group}))


def codes(result: PassResult, session_id: str) -> list[str]:
    return [each["coded"]["code"] for each in result.reasons[session_id]]


def test_others_may_use_the_rest_of_the_machine_during_the_period() -> None:
    sessions = [session(n, cuda_device="1") for n in range(1, 5)]
    queue = queue_of(sessions, part(-1, 2, cuda_device="2"))
    result = queue.run(NOW)
    assert started_sessions(result) == ["s1", "s2"]
    assert codes(result, "s3")[:2] == ["reserved-part-until", "shortages"]
    first = result.reasons["s3"][0]
    assert first["check"] == "advance-reservation"
    assert first["message"].startswith(
        "the reservation of project mine keeps cuda.device=2 free on 1 agent until "
    )
    assert result.wake_at == NOW + 2 * HOUR
    explained = explain_one(queue, "s3")
    assert explained is not None
    assert explained.estimate.starts_at == NOW + 2 * HOUR
    assert started_sessions(queue.run(NOW + 2 * HOUR)) == ["s3", "s4"]


def test_sessions_that_could_still_run_at_the_start_must_fit_beside_the_booked_amount() -> None:
    sessions = [
        session(1, cuda_device="3"),
        session(2, cuda_device="3", hours=3),
        session(3, cuda_device="3", hours=2),
        session(4, cuda_device="1"),
    ]
    result = queue_of(sessions, part(2, 4, cuda_device="2")).run(NOW)
    assert started_sessions(result) == ["s3", "s4"]
    assert codes(result, "s1")[0] == codes(result, "s2")[0] == "reserved-part-ahead"


def test_capacity_that_is_released_before_the_start_is_booked_first() -> None:
    """``s2`` ends before the period, so its devices are booked and ``s1`` may keep its own."""
    queue = queue_of(
        [session(1, cuda_device="2"), session(2, cuda_device="2", hours=1)],
        part(2, 4, cuda_device="2"),
    )
    assert started_sessions(queue.run(NOW)) == ["s1", "s2"]
    used = {d.device_id for p in queue.running("main")[1].placements for d in p.devices}
    assert used == {"a-g2", "a-g3"}
    queue.apply(Changes(removed=["s1"], pending=[session(3, cuda_device="2")]))
    assert started_sessions(queue.run(NOW)) == ["s3"]


def test_members_use_up_the_booked_amount() -> None:
    """The booked amount is reduced while sessions of members run, and restored when they end."""
    members = [session(n, MINE, cuda_device="1") for n in (1, 2)]
    queue = queue_of([*members, *(session(n, cuda_device="1") for n in (3, 4, 5))],
                     part(-1, 2, cuda_device="2"))  # fmt: skip
    assert started_sessions(queue.run(NOW)) == ["s1", "s2", "s3", "s4"]
    queue.apply(Changes(removed=["s1"]))
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(removed=["s3"]))
    assert started_sessions(queue.run(NOW)) == ["s5"]


def test_amounts_that_a_member_releases_for_others_are_used_in_the_same_pass() -> None:
    """``s1`` uses up ``r1`` and 0.3 of ``r2``, so ``s2`` fits beside the rest of ``r2``."""
    held = [part(-1, 2, key=key, cuda_shares="0.7") for key in ("r1", "r2")]
    sessions = [session(1, MINE, cuda_shares="1"), session(2, cuda_shares="0.5")]
    queue = queue_of(sessions, *held, gpus=2, backfill=Backfill.AGGRESSIVE)
    assert started_sessions(queue.run(NOW)) == ["s1", "s2"]


def test_members_may_take_more_than_the_booked_amount() -> None:
    queue = queue_of([session(1, MINE, cuda_device="4")], part(-1, 2, cuda_device="2"))
    assert started_sessions(queue.run(NOW)) == ["s1"]


def test_reserved_cpu_and_memory_stay_free() -> None:
    held = part(-1, 2, cpu="3", mem="60g")
    wanted = [("1", "5g"), ("6", "1g"), ("5", "4g")]
    sessions = [session(n, cpu=cpu, mem=mem) for n, (cpu, mem) in enumerate(wanted)]
    result = queue_of(sessions, held, backfill=Backfill.AGGRESSIVE).run(NOW)
    assert started_sessions(result) == ["s2"]


def test_reserved_shares_stay_free_on_some_device() -> None:
    held = part(-1, 2, cuda_shares="0.5")
    sessions = [session(n, cuda_shares="0.5") for n in range(1, 5)]
    result = queue_of(sessions, held, gpus=2).run(NOW)
    assert started_sessions(result) == ["s1", "s2", "s3"]


def test_other_equal_shares_do_not_take_the_device_of_reserved_shares() -> None:
    """All sessions on the device must have the same share, so another share would block it."""
    device = Device("g", "cuda", sharing=Sharing(is_uniform=True))
    one = agent(devices=(device,))
    held = part(1, 2, cuda_shares="0.5")
    sessions = [session(1, cuda_shares="0.25"), session(2, cuda_shares="0.5")]
    queue = Queue(snapshot(sessions, [one], group={"held": (held,)}))
    assert started_sessions(queue.run(NOW)) == ["s2"]


def test_a_machine_without_enough_capacity_at_the_start_keeps_what_becomes_free() -> None:
    """``s1`` has three of four devices before the approval, so ``s2`` must leave the fourth one
    free.
    """
    queue = queue_of([session(1, cuda_device="3")])
    assert started_sessions(queue.run(NOW)) == ["s1"]
    state = queue.group_queue("main").state
    queue.apply(Changes(groups=[replace(state, held=(part(0, 4, cuda_device="2"),))],
                        pending=[session(2, cuda_device="1")]))  # fmt: skip
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(removed=["s1"]))
    assert started_sessions(queue.run(NOW)) == ["s2"]


def test_order_of_the_reservations_does_not_matter() -> None:
    later, first = part(5, 9, key="r1", cuda_shares="0.5"), part(4, 9, key="r2", cuda_device="2")
    for held in ((later, first), (first, later)):
        queue = queue_of([session(1, cuda_shares="0.3")], *held, gpus=3)
        assert started_sessions(queue.run(NOW)) == ["s1"]


def test_reservations_in_different_periods_do_not_add_up() -> None:
    held = part(1, 2, key="r1", cuda_device="2"), part(3, 4, key="r2", cuda_device="2")
    queue = queue_of([session(1, cuda_device="2")], *held)
    assert started_sessions(queue.run(NOW)) == ["s1"]


def test_reservations_in_different_periods_use_the_same_devices() -> None:
    """Both reservations get the devices that ``s1`` does not use, although ``s1`` ends before the
    second period.
    """
    held = part(1, 2, key="r1", cuda_device="2"), part(3, 4, key="r2", cuda_device="2")
    sessions = [session(1, hours=3, cuda_shares="0.5"), session(2, cuda_shares="0.5")]
    queue = queue_of(sessions, *held, gpus=3)
    assert started_sessions(queue.run(NOW)) == ["s1", "s2"]


def test_shares_stay_free_on_a_device_that_is_booked_later() -> None:
    """``s1`` uses up ``r1`` and 0.2 of ``r2``, so 0.3 must stay free until the end of ``r1``."""
    held = [
        part(-2, 1, key="r1", cuda_shares="0.5"),
        part(-1, 5, key="r2", cuda_shares="0.5"),
        part(1, 6, key="r3", cuda_device="1"),
    ]
    sessions = [session(1, MINE, cuda_shares="0.7"), session(2, hours=6, cuda_shares="0.3")]
    queue = queue_of(sessions, *held, gpus=2)
    assert started_sessions(queue.run(NOW)) == ["s1", "s2"]


def test_cancelled_reservation_of_a_part_releases_it() -> None:
    queue = queue_of([session(1, cuda_device="3")], part(-1, 2, cuda_device="2"))
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(groups=[replace(queue.group_queue("main").state, held=())]))
    assert started_sessions(queue.run(NOW)) == ["s1"]


hours = st.integers(1, 6)
AGENTS = ("a", "b")
CORES, GPUS = 4, 3


@st.composite
def bookings(draw: st.DrawFn) -> tuple[HeldAgents, ...]:
    """Return reservations of parts that fit together on each agent at all times."""
    made: list[HeldAgents] = []
    for number in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, 5))
        one = part(
            start,
            start + draw(hours),
            *draw(st.sets(st.sampled_from(AGENTS), min_size=1)),
            key=f"r{number}",
            project=draw(st.sampled_from((MINE, YOURS))),
            cpu=str(draw(st.integers(0, 3))),
            cuda_device=str(draw(st.integers(1, 2))),
        )
        together = [*made, one]
        if all(
            sum(b.booked.get(slot, 0) for b in together
                if name in b.agents and b.starts_at <= NOW + hour * HOUR < b.ends_at) <= total
            for name in AGENTS
            for hour in range(12)
            for slot, total in CAPACITY.items()
        ):  # fmt: skip
            made.append(one)
    return tuple(made)


CAPACITY = {"cpu": CORES * 1000, "cuda.device": GPUS}


@st.composite
def jobs(draw: st.DrawFn) -> list[tuple[int, PendingSession]]:
    """Return sessions with the hours of their creation."""
    return [
        (
            draw(st.integers(0, 4)),
            session(
                n,
                draw(st.sampled_from((MINE, YOURS, OTHERS))),
                draw(st.none() | hours),
                cpu=str(draw(st.integers(1, CORES))),
                **draw(st.sampled_from([{}, {"cuda_device": "1"}, {"cuda_device": "2"}])),
            ),
        )
        for n in range(draw(st.integers(1, 10)))
    ]


class Oracle:
    """Naive model of running sessions and of the booked amounts that members do not use."""

    def __init__(self, held: Sequence[HeldAgents]) -> None:
        self.held = held
        self.on: dict[str, tuple[str, PendingSession, datetime | None, datetime]] = {}

    def start(self, pending: PendingSession, name: str, now: datetime) -> None:
        seconds = pending.max_run_seconds
        end = None if seconds is None else now + timedelta(seconds=seconds)
        self.on[pending.id] = name, pending, end, now

    def end_due(self, now: datetime) -> list[str]:
        due = [key for key, (*_, end, _) in self.on.items() if end is not None and end <= now]
        for key in due:
            del self.on[key]
        return due

    def free(self, name: str, at: datetime, met: Sequence[HeldAgents]) -> dict[str, int]:
        """Return the free amounts at a time. ``met`` are the reservations whose periods the session
        overlaps.
        """
        there = sorted(
            (started, key, pending)
            for key, (where, pending, end, started) in self.on.items()
            if where == name and (end is None or end > at)
        )
        free = dict(CAPACITY)
        left = {}
        for _, key, pending in there:
            left[key] = dict(pending.request.slots)
            for slot in free:
                free[slot] -= pending.request.slots.get(slot, 0)
        for one in self.held:
            if name in one.agents and one.starts_at <= at < one.ends_at:
                for slot in free:
                    missing = one.booked.get(slot, 0)
                    for _, key, pending in there:
                        if one.project in pending.scopes:
                            used = min(missing, left[key].get(slot, 0))
                            missing -= used
                            left[key][slot] = left[key].get(slot, 0) - used
                    if one in met:
                        free[slot] -= missing
        return free

    def may_start(self, pending: PendingSession, name: str, now: datetime) -> bool:
        seconds = pending.max_run_seconds
        met = [
            one
            for one in self.held
            if name in one.agents
            and now < one.ends_at
            and one.project not in pending.scopes
            and (seconds is None or now + timedelta(seconds=seconds) > one.starts_at)
        ]
        times = {now, *(max(now, one.starts_at) for one in met)}
        frees = [self.free(name, at, met) for at in times]
        return all(free[s] >= pending.request.slots.get(s, 0) for free in frees for s in free)


@settings(
    max_examples=4 * QUEUE_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(bookings(), jobs(), st.sampled_from((Backfill.AGGRESSIVE, Backfill.RESERVING)))
def test_booked_amounts_stay_available_and_nothing_else_is_refused(
    held: tuple[HeldAgents, ...], sessions: list[tuple[int, PendingSession]], backfill: Backfill
) -> None:
    """Sessions run until their time limit, or forever if they have none; all agents are empty at
    first.
    """
    agents = [agent(name, cpu=CORES, gpus=GPUS) for name in AGENTS]
    queue = Queue(snapshot([], agents, group={"held": held, "backfill": backfill}))
    by_id = {pending.id: pending for _, pending in sessions}
    oracle = Oracle(held)
    for hour in range(13):
        now = NOW + hour * HOUR
        created = [pending for at, pending in sessions if at == hour]
        queue.apply(Changes(removed=oracle.end_due(now), pending=created))
        result = queue.run(now)
        for decision in result.decisions:
            oracle.start(by_id[decision.session_id], decision.placement.agent_id, now)
        # Members can always start what remains of each reservation, now and at its start.
        for one in held:
            for name in one.agents if now < one.ends_at else ():
                at = max(now, one.starts_at)
                assert min(oracle.free(name, at, held).values()) >= 0
        if backfill is Backfill.AGGRESSIVE:
            for key in result.reasons:
                assert not any(oracle.may_start(by_id[key], name, now) for name in AGENTS)


@pytest.mark.parametrize("policy_of", ["members", "others"])
def test_two_kernels_on_one_machine_fit_beside_the_booked_amount(policy_of: str) -> None:
    project = MINE if policy_of == "members" else OTHERS
    wanted = replace(request(cuda_device="2"), kernels=2)
    pending = pending_session(1, wanted=wanted, scopes=(ANN, project))
    queue = Queue(
        snapshot([pending], [agent(gpus=4)], group={"held": (part(1, 2, cuda_device="1"),)})
    )
    assert started_sessions(queue.run(NOW)) == (["s1"] if project is MINE else [])


def state_of(queue: Queue) -> AgentState:
    return queue.group_queue("main").placer.agents()[0]


def test_searches_leave_the_state_of_the_agents_unchanged() -> None:
    queue = queue_of([session(1, cuda_device="4")], part(-1, 2, cuda_device="2"))
    before = state_of(queue)
    queue.run(NOW)
    placer = queue.group_queue("main").placer
    handle = placer.prepare(Request(slots(cuda_device="4"), "main", "x86_64", beside=("r1",)))
    version = placer.version
    assert not placer.fits(handle)
    assert placer.place(handle) is None
    assert placer.fits_each([handle]) == [False]
    assert placer.refusal(handle).shortages[0].available == 2
    assert placer.version == version
    assert state_of(queue) == before
