"""Schedule of a resource group: running and pending sessions, with agents and times."""

from __future__ import annotations

from datetime import timedelta

from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.estimates.schedule import group_schedule
from bai_services.core.scheduling.queue import Certainty, Queue

from ..queue.factories import (
    BOB,
    MAIN,
    NOW,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    with_usage,
)

HOUR = timedelta(hours=1)


def test_sessions_are_listed_with_placements_and_times() -> None:
    ends = NOW + HOUR
    blocker = running("r", BOB, "a", slots(cpu="7"), ends_at=ends)
    unlimited = running("u", BOB, "a", slots(cpu="1"))
    agents = [with_usage(agent(), slots(cpu="8"))]
    pending = [pending_session(n, wanted=request(cpu="2")) for n in (1, 2)]
    queue = Queue(snapshot(pending, agents, running=[unlimited, blocker]))
    queue.run(NOW)
    schedule = group_schedule(Explainer(queue), MAIN.id, 10, 10)
    assert [(p.session_id, p.ends_at, p.certainty) for p in schedule.running] == [
        ("r", ends, Certainty.KNOWN),
        ("u", None, Certainty.UNKNOWN),
    ]
    first, second = schedule.waiting
    assert (first.session_id, first.position, first.starts_at) == ("s1", 1, ends)
    assert [placement.agent_id for placement in first.placements] == ["a"]
    assert first.reason
    assert (second.position, second.placements) == (2, ())
    assert [lane.agent_id for lane in schedule.lanes] == ["a"]


def test_length_of_lists_is_limited_but_counts_are_complete() -> None:
    pending = [pending_session(n, wanted=request(cpu="8")) for n in range(1, 6)]
    busy = [running(f"r{n}", BOB, "a", slots(cpu="1"), ends_at=NOW + n * HOUR) for n in (2, 1)]
    queue = Queue(snapshot(pending, [with_usage(agent(), slots(cpu="2"))], running=busy))
    queue.run(NOW)
    schedule = group_schedule(Explainer(queue), MAIN.id, 1, 2)
    assert [p.session_id for p in schedule.running] == ["r1"]
    assert [p.session_id for p in schedule.waiting] == ["s1", "s2"]
    assert (schedule.running_count, schedule.waiting_count) == (2, 5)
