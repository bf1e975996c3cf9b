"""Conversion of recorded sessions into a workload, and the comparison of policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.group_options import GroupOptions
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.placement import AgentState, Placement, Policy, Request
from bai_services.core.scheduling.queue import Backfill, DailyUsage, Order
from bai_services.core.scheduling.replay.comparison import Comparison, compare, recorded_history
from bai_services.core.scheduling.replay.daily_usage import FIRST_DAY
from bai_services.core.scheduling.replay.policies import ReplayPolicy
from bai_services.core.scheduling.replay.recorded import (
    DEFAULT_SECONDS,
    Gap,
    Record,
    RecordedAgent,
    RecordedSession,
    workload_of,
)

SINCE = datetime(2030, 1, 2, 6, tzinfo=UTC)
START = 6 * 3600  # SINCE in seconds after midnight
UNTIL = SINCE + timedelta(hours=1)
GROUP = "gpu"


def at(seconds: float) -> datetime:
    return SINCE + timedelta(seconds=seconds)


def session(
    name: str,
    created: float,
    placed: float | None = None,
    freed: float | None = None,
    **more: Any,
) -> RecordedSession:
    """Return a recorded session; all times are in seconds after SINCE."""
    cores = more.pop("cores", 4)
    slots = ResourceSlots({"cpu": cores * 1000})
    values: dict[str, Any] = {
        "ended_at": None if freed is None else at(freed),
        "request": Request(slots, GROUP, "x86_64"),
        "priority": 10,
        "domain": "default",
        "project": "p1",
        "user": "u1",
        "keypair": "K",
        "kind": "batch:python",
        "placements": () if placed is None else (Placement("a1", slots),),
        "placement_count": int(placed is not None),
    }
    return RecordedSession(
        id=name,
        created_at=at(created),
        placed_at=None if placed is None else at(placed),
        freed_at=None if freed is None else at(freed),
        **{**values, **more},
    )


def agent(name: str = "a1", cores: int = 4, joined: float = -1e6, **more: Any) -> RecordedAgent:
    left = more.pop("left", None)
    state = AgentState(name, GROUP, "x86_64", "process", {"cpu": cores * 1000}, **more)
    return RecordedAgent(state, at(joined), None if left is None else at(left))


def record(*sessions: RecordedSession, **more: Any) -> Record:
    return Record(GROUP, sessions, **{"agents": [agent()], **more})


def policy(name: str = "p", **options: Any) -> ReplayPolicy:
    order = options.pop("order", Order.FIFO)
    options.setdefault("placement", Policy.BEST_FIT)
    return ReplayPolicy(name, order, GroupOptions(**options))


def jobs_of(recorded: Record, until: datetime = UNTIL) -> dict[str, Any]:
    return {job.id: job for job in workload_of(recorded, SINCE, until, until).jobs}


def compared(recorded: Record, *others: ReplayPolicy, visible_in: str | None = None) -> Comparison:
    full = compare(workload_of(recorded, SINCE, UNTIL, UNTIL), policy(), others)
    return full.visible_in(visible_in)


def test_times_are_seconds_after_midnight_and_run_time_is_from_placement_to_release() -> None:
    (job,) = jobs_of(record(session("a", 10.9, 12.6, 100.4))).values()
    assert (job.submitted, job.seconds, job.cancelled) == (START + 10, 88, None)
    assert (job.domain, job.project, job.user, job.keypair) == ("default", "p1", "u1", "K")


@pytest.mark.parametrize(
    ("case", "recorded", "is_in"),
    [
        ("ended before the period", session("s", -90, -80, -1), False),
        ("cancelled before the period", session("s", -90, ended_at=at(-1)), False),
        ("created at the end of the period", session("s", 3600), False),
        ("runs at the start of the period", session("s", -90, -80, 5), True),
        ("waits at the start of the period", session("s", -90, 5, 7), True),
        ("waits for a dependency that has not ended", session("s", 5, is_blocked=True), False),
    ],
)
def test_workload_contains_the_sessions_of_the_period(
    case: str, recorded: RecordedSession, is_in: bool
) -> None:
    assert bool(jobs_of(record(recorded))) is is_in, case


def test_sessions_that_run_or_wait_at_the_start_of_the_period_are_replayed() -> None:
    recorded = record(session("runs", -90, -80, 50), session("waits", -60, 50, 70))
    workload = workload_of(recorded, SINCE, UNTIL, UNTIL)
    assert workload.conditions.starts == {"runs": workload.history["runs"]}
    assert workload.begin == START
    current = compared(recorded).reports[1]
    # The pending session waited 60 s before the period and 50 s in the period.
    assert (current.sessions, current.wait_seconds.max) == (1, 110)


def test_session_cancelled_in_the_record_leaves_the_queue_unless_already_started() -> None:
    recorded = record(session("runs", 0, 0, 100), session("gone", 1, ended_at=at(50)))
    assert jobs_of(recorded)["gone"].cancelled == START + 50
    history, current = compared(recorded).reports
    assert (history.started, current.started, current.sessions) == (1, 1, 2)
    quick = record(session("runs", 0, 0, 40), session("gone", 1, ended_at=at(50)))
    history, current = compared(quick).reports
    assert (history.started, current.started) == (1, 2)
    assert current.than_history is not None
    assert (current.than_history.earlier, current.than_history.same) == (1, 1)


@pytest.mark.parametrize(
    ("case", "recorded", "durations", "seconds"),
    [
        ("median of the kind", session("s", 0), {"batch:python": [10, 20, 30]}, 20),
        (
            "no session of the kind has ended: median of all kinds",
            session("s", 0),
            {"x": [5, 7, 9]},
            7,
        ),
        ("no session has ended: default", session("s", 0), {}, DEFAULT_SECONDS),
        (
            "not started: at most the limit",
            session("s", 0, limit_seconds=15),
            {"batch:python": [99]},
            15,
        ),
        (
            "running: median of the sessions that ran longer",
            session("s", 0, 3590),
            {"batch:python": [5, 5, 5, 20, 30, 30, 30, 40]},
            30,
        ),
        (
            "running: at least the time since the start",
            session("s", 0, 600, limit_seconds=9),
            {},
            3000,
        ),
    ],
)
def test_unknown_run_time_is_estimated(
    case: str, recorded: RecordedSession, durations: dict[str, list[int]], seconds: int
) -> None:
    workload = workload_of(record(recorded, durations=durations), SINCE, UNTIL, UNTIL)
    assert workload.jobs[0].seconds == seconds, case
    gap = Gap.NEVER_STARTED if recorded.placed_at is None else Gap.STILL_RUNNING
    assert workload.gaps[gap] == 1


def test_gaps_count_facts_that_were_not_recorded() -> None:
    elsewhere = (Placement("gone", ResourceSlots({"cpu": 4000})),)
    user = Scope(ScopeKind.USER, "u1")
    recorded = record(
        session("a", 0, 0, 9, placements=elsewhere),
        session("b", 0, 10, 20, placement_count=2),
        session("c", 0, 20, 30, has_dependencies=True, ready_at=at(20)),
        caps={user: ScopeCaps(user, "u1", max_sessions=1)},
    )
    assert workload_of(recorded, SINCE, UNTIL, UNTIL).gaps == {
        Gap.BEHAVIOUR: 3,
        Gap.AGENTS_GONE: 1,
        Gap.AGENTS_TODAY: 1,
        Gap.PLACED_AGAIN: 1,
        Gap.DEPENDENCIES: 1,
        Gap.QUOTAS_TODAY: 1,
    }


def test_agents_are_available_from_joining_until_leaving() -> None:
    agents = [
        agent("lost", left=5),
        agent("new", joined=30),
        # A drained agent is assumed to accept no sessions after its last placement.
        agent("drained", is_schedulable=False),
        agent("never", is_schedulable=False, joined=10),
    ]
    on_drained = (Placement("drained", ResourceSlots({"cpu": 4000})),)
    recorded = record(
        session("a", 0, 0, 20, placements=on_drained),
        session("b", 1, 1, 21),
        session("c", 6, 30, 40),
        agents=agents,
    )
    workload = workload_of(recorded, SINCE, UNTIL, UNTIL)
    left = {name: second - START for name, second in workload.conditions.left.items()}
    assert left == {"lost": 5, "drained": 1, "never": 11}
    replayed = policy().replay(
        workload.jobs, workload.agents, group=GROUP, conditions=workload.conditions
    )
    starts = {o.job.id: (o.started - START, o.placements[0].agent_id) for o in replayed.outcomes}
    assert starts == {"a": (0, "drained"), "b": (1, "lost"), "c": (10, "never")}


def test_replay_applies_quotas_and_earlier_usage() -> None:
    user = Scope(ScopeKind.USER, "u1")
    sessions = [session(n, i, i, 100, cores=1) for i, n in enumerate("ab")]
    limited = record(*sessions, caps={user: ScopeCaps(user, "u1", max_sessions=1)})
    assert compared(limited).reports[1].wait_seconds.max == 99
    assert compared(record(*sessions)).reports[1].wait_seconds.max == 0
    usage = {user: [DailyUsage((SINCE - datetime(1970, 1, 1, tzinfo=UTC)).days - 1, {"cpu": 1})]}
    shifted = workload_of(record(usage=usage), SINCE, UNTIL, UNTIL).conditions.usage
    assert shifted == {user: (DailyUsage(FIRST_DAY - 1, {"cpu": 1}),)}


def test_comparison_reports_history_and_policies() -> None:
    """Without backfill (policy "strict"), session "small" must wait for "wide", which is ahead."""
    recorded = record(
        session("long", 0, 0, 1000, cores=3, limit_seconds=1000),
        session("wide", 1, 1000, 1900, cores=4, limit_seconds=900, user="u2", priority=20),
        session("small", 2, 2, 602, cores=1, limit_seconds=600, domain="acme", user="u3"),
        names={"u1": "ann", "u2": "bob", "u3": "eve", "p1": "vision"},
    )
    result = compared(recorded, policy("strict", backfill=Backfill.OFF))
    assert [r.name for r in result.reports] == ["history", "current", "strict"]
    history, current, strict = result.reports
    assert (result.since, result.until, result.sessions) == (SINCE, UNTIL, 3)
    assert history.wait_seconds == current.wait_seconds
    assert (history.makespan_seconds, strict.makespan_seconds) == (1900, 2500)
    assert (history.than_history, history.than_current) == (None, None)
    assert current.than_history is not None and current.than_history.same == 3
    assert strict.than_current is not None
    assert (strict.than_current.later, strict.than_current.same) == (1, 2)
    # Used: 3 cores for 1000 s, 4 for 900 s and 1 for 600 s. Available: 4 cores for an hour.
    assert history.utilization[0].mean_percent == pytest.approx(50.0)
    assert history.utilization[0].percents[:2] == pytest.approx((98.68, 100.0), abs=0.1)
    assert len(history.utilization[0].percents) == len(result.times)
    users = {(g.domain, g.name): g.wait_seconds.max for g in strict.by_user}
    assert users == {("default", "ann"): 0, ("default", "bob"): 999, ("acme", "eve"): 1898}
    assert [(g.name, g.sessions) for g in strict.by_priority] == [("20", 1), ("10", 2)]


def test_drained_agent_counts_in_the_utilization_until_its_last_session_has_ended() -> None:
    # The period has 95 intervals of 38 s. The session runs in the first 50 intervals (1900 s).
    recorded = record(session("a", 0, 0, 1900), agents=[agent(is_schedulable=False)])
    for report in compared(recorded).reports:
        (cpu,) = report.utilization
        assert cpu.mean_percent == 100
        assert cpu.percents == (100,) * 50 + (None,) * 45


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 99),  # second at which the agent joins and its only session starts
            st.integers(1, 99),  # run time of this session in seconds
            st.sampled_from(["available", "drained", "lost"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_utilization_of_each_second_is_the_used_part_of_the_available_agents(
    agents: list[tuple[int, int, str]],
) -> None:
    until = at(96)  # 96 intervals of one second
    recorded = record(
        *(
            session(
                f"s{n}",
                joined,
                joined,
                joined + seconds,
                placements=(Placement(f"a{n}", ResourceSlots({"cpu": 4000})),),
            )
            for n, (joined, seconds, _) in enumerate(agents)
        ),
        agents=[
            agent(
                f"a{n}",
                joined=joined,
                is_schedulable=state != "drained",
                left=joined + 1 if state == "lost" else None,
            )
            for n, (joined, _, state) in enumerate(agents)
        ],
    )
    comparison = compare(workload_of(recorded, SINCE, until, until), policy(), ()).comparison
    expected = []
    for second in range(96):
        used = [joined <= second < joined + seconds for joined, seconds, _ in agents]
        available = [
            is_used or (state == "available" and joined <= second)
            for is_used, (joined, _, state) in zip(used, agents, strict=True)
        ]
        expected.append(round(100 * sum(used) / sum(available), 2) if any(available) else None)
    assert comparison.reports[0].utilization[0].percents == tuple(expected)


def test_names_of_other_domains_are_hidden() -> None:
    recorded = record(
        session("a", 0, 0, 10, user="u1", project="p1"),
        session("b", 1, 10, 20, user="u2", project="p2", domain="acme"),
        session("c", 2, 20, 30, user="u3", project="p3", domain="other"),
        names={"u1": "ann", "u2": "eve", "p2": "secret-plan"},
    )
    for report in compared(recorded, visible_in="default").reports:
        assert [(g.domain, g.name, g.sessions) for g in report.by_user] == [
            ("default", "ann", 1), ("", "", 2),
        ]  # fmt: skip
        assert report.by_user[-1] == report.by_project[-1]
        assert report.by_user[-1].wait_seconds.max == 18
        assert "eve" not in repr(report) and "secret" not in repr(report)
    for report in compared(recorded, visible_in="empty-domain").reports:
        assert [(g.name, g.sessions) for g in report.by_user] == [("", 3)]


def test_empty_record_can_be_compared() -> None:
    result = compared(record(agents=[]))
    assert result.sessions == 0
    assert result.reports
    assert all(report.wait_seconds.max == 0 for report in result.reports)


def test_session_placed_in_the_second_its_agent_joined_is_replayed_unchanged() -> None:
    workload = workload_of(
        record(session("a", 10, 10, 20), agents=[agent(joined=10)]), SINCE, UNTIL, UNTIL
    )
    recorded = recorded_history(workload, policy())
    current = policy().replay(
        workload.jobs, workload.agents, group=GROUP, conditions=workload.conditions
    )
    assert recorded.outcomes == current.outcomes
    assert recorded.samples == current.samples
