"""Running sessions that can delay an advance reservation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.advance_reservations import HeldAgents
from bai_services.core.scheduling.estimates.conflicts import Conflict, conflicts_with
from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.queue import Changes, PendingSession, Queue
from tests.core.queue.factories import NOW, QUEUE_EXAMPLES, agent, snapshot, started_sessions
from tests.core.queue.test_reserved_parts import HOUR, MINE, OTHERS, part, session

CORES, GPUS = 8, 4


def approve(queue: Queue, held: HeldAgents) -> None:
    state = queue.group_queue("main").state
    queue.apply(Changes(groups=[replace(state, held=(*state.held, held))]))


def conflicts(queue: Queue, held: HeldAgents, hour: float = 0) -> tuple[Conflict, ...]:
    return conflicts_with(Explainer(queue), "main", held, NOW + hour * HOUR)


def running(*sessions: PendingSession) -> Queue:
    """Return a queue whose sessions have all started on one agent."""
    queue = Queue(snapshot(list(sessions), [agent(cpu=CORES, gpus=GPUS)]))
    assert len(started_sessions(queue.run(NOW))) == len(sessions)
    return queue


def test_sessions_without_a_limit_are_named_if_the_rest_is_too_small() -> None:
    queue = running(
        session(1, cuda_device="2"),
        session(2, hours=2, cuda_device="1"),
        session(3),
        session(4, MINE, cuda_device="1"),
    )
    # The member's session uses one of the booked devices, and one ends in time.
    assert conflicts(queue, part(2, 4, cuda_device="2")) == ()
    late = part(1, 4, cuda_device="3")
    assert conflicts(queue, late) == (
        Conflict("s1", ("a",), None),
        Conflict("s2", ("a",), NOW + 2 * HOUR),
    )
    # Sessions with whole devices are listed, too, because their devices provide no shares.
    assert [one.session_id for one in conflicts(queue, part(1, 4, cuda_shares="2"))] == ["s1", "s2"]
    # Only devices are missing, so a session without devices is not listed.
    both = part(1, 4, cpu="2", cuda_device="3")
    assert [one.session_id for one in conflicts(queue, both)] == ["s1", "s2"]
    assert "s3" in [one.session_id for one in conflicts(queue, part(1, 4, cpu=str(CORES)))]
    assert conflicts(queue, late, 4) == ()


def test_every_session_of_others_delays_whole_machines_unless_it_ends_or_is_stopped() -> None:
    queue = running(session(1), session(2, hours=1), session(3, MINE))
    held = replace(part(1, 4), booked=ResourceSlots())
    assert [one.session_id for one in conflicts(queue, held)] == ["s1"]
    stopping = replace(queue.group_queue("main").running["s1"], is_ending=True)
    queue.apply(Changes(running=[stopping]))
    assert conflicts(queue, held) == ()
    assert conflicts_with(Explainer(queue), "nothing", held, NOW) == ()


@st.composite
def jobs(draw: st.DrawFn) -> list[tuple[int, PendingSession]]:
    """Return sessions with the hours of their creation."""
    return [
        (
            draw(st.integers(0, 5)),
            session(
                n,
                draw(st.sampled_from((MINE, OTHERS, OTHERS))),
                draw(st.none() | st.integers(1, 5)),
                cpu=str(draw(st.integers(1, 4))),
                **draw(st.sampled_from([{}, {"cuda_device": "1"}, {"cuda_device": "2"}])),
            ),
        )
        for n in range(draw(st.integers(1, 10)))
    ]


@pytest.mark.parametrize("is_whole", [False, True])
@settings(max_examples=QUEUE_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs=jobs(), start=st.integers(2, 5), cpu=st.integers(1, CORES), gpus=st.integers(1, GPUS))
def test_only_sessions_that_were_named_at_the_approval_delay_a_reservation(
    is_whole: bool, jobs: list[tuple[int, PendingSession]], start: int, cpu: int, gpus: int
) -> None:
    """The reservation is approved after an hour. Sessions run until their limit, or forever. At the
    start, the reservation has its resources, or the sessions that hold them were named.
    """
    held = part(start, 9, cpu=str(cpu), cuda_device=str(gpus))
    if is_whole:
        held = replace(held, booked=ResourceSlots())
    queue = Queue(snapshot([], [agent(cpu=CORES, gpus=GPUS)]))
    by_id = {pending.id: pending for _, pending in jobs}
    ends: dict[str, int | None] = {}
    named: set[str] = set()
    for hour in range(start + 1):
        over = [key for key, end in ends.items() if end is not None and end <= hour]
        for key in over:
            del ends[key]
        queue.apply(Changes(removed=over, pending=[p for at, p in jobs if at == hour]))
        if hour == 1:
            approve(queue, held)
            named = {one.session_id for one in conflicts(queue, held, hour)}
        for key in started_sessions(queue.run(NOW + hour * HOUR)):
            seconds = by_id[key].max_run_seconds
            ends[key] = None if seconds is None else hour + seconds // 3600
    late = {one.session_id for one in conflicts(queue, held, start)}
    assert late <= named
    others = [by_id[key] for key in ends if MINE not in by_id[key].scopes]
    mine = [by_id[key] for key in ends if MINE in by_id[key].scopes]
    is_late = any(
        sum(p.request.slots.get(slot, 0) for p in others)
        + max(booked, sum(p.request.slots.get(slot, 0) for p in mine))
        > total
        for slot, booked, total in (
            ("cpu", cpu * 1000, CORES * 1000),
            ("cuda.device", gpus, GPUS),
        )
    )
    assert bool(late) == (bool(others) if is_whole else is_late)
    assert all(one.ends_at is None or one.ends_at > NOW + timedelta(hours=start)
               for one in conflicts(queue, held, start))  # fmt: skip
