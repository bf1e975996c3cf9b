"""Compare the recorded history of a resource group with replays under several policies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

import numpy as np

from ..queue.model import DEFAULT_PRIORITY
from .measures import Floats, mean_fragmentation, spread, total_capacity_of, use_of
from .policies import ReplayPolicy
from .recorded import GAP_MESSAGES, Gap, RecordedWorkload
from .simulate import OnProgress, Outcome, Replay, ignore_progress
from .workload import Job

K = TypeVar("K", str, int)

HISTORY = "history"
CURRENT = "current"
# Maximum number of intervals of the period for which the utilization is reported.
INTERVALS = 96
# Starts that differ by at most 5 s count as equal: recorded starts include the delay of a pass.
EQUAL_SECONDS = 5
# Maximum number of projects, and of users, of each domain in a result. Those with the longest total
# wait are shown.
MAX_GROUPS = 50


@dataclass(frozen=True, slots=True)
class Waits:
    """Waiting times of started sessions in seconds."""

    mean: float
    median: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """Waiting times of the sessions of a project, a user, a priority or all other domains.

    ``domain`` and ``name`` are empty where they do not apply.
    """

    domain: str
    name: str
    sessions: int
    started: int
    wait_seconds: Waits


@dataclass(frozen=True, slots=True)
class Utilization:
    """Use of a resource in percent of its capacity, for each interval; None: no capacity."""

    resource: str
    mean_percent: float
    percents: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Shifts:
    """Number of sessions that start earlier, later or at the same time as in another report."""

    earlier: int
    later: int
    same: int


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """The history, or a replay under one policy.

    The makespan is the time from the first request in the period to the end of the last session.
    ``than_history`` and ``than_current`` compare starts with the history and with the replay of the
    current policy. ``than_history`` is None in the history; ``than_current`` is None in the history
    and in the replay of the current policy. ``preemptions`` and ``lost_seconds`` come from
    ``Replay``; both are 0 in the history.
    """

    name: str
    scheduler: str
    placement: str
    backfill: str
    sessions: int
    started: int
    preemptions: int
    lost_seconds: int
    wait_seconds: Waits
    makespan_seconds: int
    fragmentation_percent: float
    utilization: tuple[Utilization, ...]
    than_history: Shifts | None
    than_current: Shifts | None
    by_project: tuple[GroupWaits, ...]
    by_user: tuple[GroupWaits, ...]
    by_priority: tuple[GroupWaits, ...]


@dataclass(frozen=True, slots=True)
class CountedGap:
    """A gap in the record, and the number of sessions, agents or quotas that it affects."""

    kind: Gap
    count: int
    message: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Reports of the history, the current policy and the other policies, in this order.

    ``times`` are the start times of the intervals of ``Utilization``. ``running_before`` is the
    number of sessions that were already running at ``since``; ``sessions`` and the counts in the
    reports exclude them.
    """

    since: datetime
    until: datetime
    sessions: int
    running_before: int
    agents: int
    interval_seconds: int
    times: tuple[datetime, ...]
    gaps: tuple[CountedGap, ...]
    reports: tuple[PolicyReport, ...]


@dataclass(frozen=True, slots=True)
class FullComparison:
    """A comparison that names the projects and users of all domains.

    ``outside[domain][i]`` has the waiting times of all sessions outside ``domain`` in report ``i``.
    """

    comparison: Comparison
    outside: Mapping[str, tuple[GroupWaits, ...]]

    def visible_in(self, domain: str | None) -> Comparison:
        """Return the comparison with the projects and users of only one domain (None: all domains).

        The projects of all other domains are merged into one entry without a name, and their users
        into another.
        """
        if domain is None:
            return self.comparison
        reports = tuple(
            replace(
                report,
                by_project=_of_domain(report.by_project, domain, others),
                by_user=_of_domain(report.by_user, domain, others),
            )
            for report, others in zip(
                self.comparison.reports,
                self.outside.get(domain, self.outside[""]),
                strict=True,
            )
        )
        return replace(self.comparison, reports=reports)


def _of_domain(
    groups: Iterable[GroupWaits], domain: str, others: GroupWaits
) -> tuple[GroupWaits, ...]:
    own = tuple(group for group in groups if group.domain == domain)
    return (*own, others) if others.sessions else own


def compare(
    workload: RecordedWorkload,
    current: ReplayPolicy,
    others: Sequence[ReplayPolicy],
    on_progress: OnProgress = ignore_progress,
) -> FullComparison:
    """Compare the recorded history with replays under the current policy and ``others``."""
    policies = (current, *others)
    steps = len(policies) + 1
    replays = [recorded_history(workload, current)]
    on_progress(1 / steps)
    for number, policy in enumerate(policies, start=1):
        replays.append(
            policy.replay(
                workload.jobs,
                workload.agents,
                group=workload.group,
                conditions=workload.conditions,
                on_progress=_part(on_progress, number, steps),
            )
        )
        on_progress((number + 1) / steps)
    edges = _edges(workload)
    reports = []
    for number, (policy, replayed) in enumerate(zip((current, *policies), replays, strict=True)):
        reports.append(
            replace(
                _report(workload, policy, replayed, edges),
                name=(HISTORY, CURRENT)[number] if number < 2 else policy.name,
                than_history=_shifts(workload, replayed, replays[0]) if number else None,
                than_current=_shifts(workload, replayed, replays[1]) if number > 1 else None,
            )
        )
    comparison = Comparison(
        since=_time(workload, workload.begin),
        until=_time(workload, workload.end),
        sessions=len(workload.jobs) - len(workload.conditions.starts),
        running_before=len(workload.conditions.starts),
        agents=len(workload.agents),
        interval_seconds=int(edges[1] - edges[0]),
        times=tuple(_time(workload, int(edge)) for edge in edges[:-1]),
        gaps=tuple(
            CountedGap(gap, count, GAP_MESSAGES[gap]) for gap, count in workload.gaps.items()
        ),
        reports=tuple(reports),
    )
    measured = [_measured(workload, replayed) for replayed in replays]
    # The entry "" is for domains without sessions in the period.
    domains = {"", *(o.job.domain for o in measured[0])}
    outside = {
        domain: tuple(
            _group_waits("", "", [o for o in outcomes if o.job.domain != domain])
            for outcomes in measured
        )
        for domain in sorted(domains)
    }
    return FullComparison(comparison, outside)


def recorded_history(workload: RecordedWorkload, current: ReplayPolicy) -> Replay:
    """Return the recorded history in the form of a replay.

    Every recorded start is applied to the agents, without decisions of a queue.
    """
    started = [job for job in workload.jobs if job.id in workload.history]
    replayed = current.replay(
        started,
        workload.agents,
        group=workload.group,
        conditions=replace(workload.conditions, starts=workload.history),
    )
    waiting = (Outcome(job, None) for job in workload.jobs if job.id not in workload.history)
    return replace(replayed, outcomes=(*replayed.outcomes, *waiting))


def _part(on_progress: OnProgress, number: int, steps: int) -> OnProgress:
    return lambda part: on_progress((number + part) / steps)


def _time(workload: RecordedWorkload, seconds: int) -> datetime:
    return workload.origin + timedelta(seconds=seconds)


def _edges(workload: RecordedWorkload) -> Floats:
    """Return the edges of the intervals in whole seconds; the last interval may be shorter."""
    span = max(1, workload.end - workload.begin)
    step = -(-span // INTERVALS)
    begins = np.arange(0, span, step, dtype=np.float64)
    return workload.begin + np.append(begins, span)


def _report(
    workload: RecordedWorkload, policy: ReplayPolicy, replayed: Replay, edges: Floats
) -> PolicyReport:
    measured = _measured(workload, replayed)
    started = [o for o in measured if o.started is not None]
    first = min((max(workload.begin, o.job.submitted) for o in measured), default=workload.begin)
    ends = [o.started + o.job.seconds for o in started if o.started is not None]
    return PolicyReport(
        name=policy.name,
        scheduler=policy.order.value,
        placement=policy.options.placement.value,
        backfill=policy.options.backfill.value,
        sessions=len(measured),
        started=len(started),
        preemptions=replayed.preemptions,
        lost_seconds=replayed.lost_seconds,
        wait_seconds=_waits(measured),
        makespan_seconds=max(ends, default=first) - first,
        fragmentation_percent=mean_fragmentation(replayed),
        utilization=_utilization(workload, replayed, edges),
        than_history=None,
        than_current=None,
        by_project=_by_name(measured, lambda job: job.project, workload.names),
        by_user=_by_name(measured, lambda job: job.user, workload.names),
        by_priority=_by_priority(measured),
    )


def _measured(workload: RecordedWorkload, replayed: Replay) -> list[Outcome]:
    """Return the outcomes of all jobs that were not running at the start of the period."""
    return [o for o in replayed.outcomes if o.job.id not in workload.conditions.starts]


def _waits(outcomes: Iterable[Outcome]) -> Waits:
    waited = [o.waited for o in outcomes if o.waited is not None]
    # If the recorded dependencies ended after the recorded start, the wait would be negative; count
    # it as 0.
    return Waits(**spread(np.maximum(0, np.array(waited, np.float64))))


def _group_waits(domain: str, name: str, outcomes: Sequence[Outcome]) -> GroupWaits:
    started = sum(o.started is not None for o in outcomes)
    return GroupWaits(domain, name, len(outcomes), started, _waits(outcomes))


def _grouped(outcomes: Iterable[Outcome], key: Callable[[Job], K]) -> dict[K, list[Outcome]]:
    found: dict[K, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[key(outcome.job)].append(outcome)
    return found


def _by_name(
    outcomes: Iterable[Outcome], key: Callable[[Job], str], names: Mapping[str, str]
) -> tuple[GroupWaits, ...]:
    """Return the waiting times by project or user.

    For each domain, only the ``MAX_GROUPS`` groups with the longest total wait are kept.
    """
    found: list[GroupWaits] = []
    for domain, of_domain in sorted(_grouped(outcomes, lambda job: job.domain).items()):
        groups = [
            _group_waits(domain, names.get(of, of), members)
            for of, members in _grouped(of_domain, key).items()
        ]
        found += sorted(groups, key=_by_total_wait)[:MAX_GROUPS]
    return tuple(sorted(found, key=_by_total_wait))


def _by_total_wait(group: GroupWaits) -> tuple[float, str, str]:
    return -group.wait_seconds.mean * group.started, group.domain, group.name


def _by_priority(outcomes: Iterable[Outcome]) -> tuple[GroupWaits, ...]:
    groups = _grouped(
        outcomes, lambda job: DEFAULT_PRIORITY if job.priority is None else job.priority
    )
    return tuple(_group_waits("", str(n), groups[n]) for n in sorted(groups, reverse=True))


def _shifts(workload: RecordedWorkload, replayed: Replay, other: Replay) -> Shifts:
    """Compare the starts in two replays; a session without a start counts as infinitely late."""
    never = float("inf")
    before = {o.job.id: never if o.started is None else o.started for o in other.outcomes}
    earlier = later = same = 0
    for outcome in _measured(workload, replayed):
        start = never if outcome.started is None else outcome.started
        reference = before[outcome.job.id]
        if start == reference or abs(start - reference) <= EQUAL_SECONDS:
            same += 1
        elif start < reference:
            earlier += 1
        else:
            later += 1
    return Shifts(earlier, later, same)


def _utilization(
    workload: RecordedWorkload, replayed: Replay, edges: Floats
) -> tuple[Utilization, ...]:
    used: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for outcome in replayed.outcomes:
        if outcome.started is not None:
            for name, amount in use_of(outcome).items():
                used[name] += (
                    (outcome.started, amount),
                    (outcome.started + outcome.job.seconds, -amount),
                )
    capacity = _capacity_changes(workload, replayed)
    found = []
    for name in sorted(capacity):
        means = _means(used.get(name, []), edges)
        available = _means(capacity[name], edges)
        percents = [
            round(100 * u / a, 2) if a > 0 else None
            for u, a in zip(means.tolist(), available.tolist(), strict=True)
        ]
        widths = np.diff(edges)
        total = float((available * widths).sum())
        mean = round(100 * float((means * widths).sum()) / total, 2) if total else 0.0
        found.append(Utilization(name, mean, tuple(percents)))
    return tuple(found)


def _capacity_changes(
    workload: RecordedWorkload, replayed: Replay
) -> dict[str, list[tuple[int, int]]]:
    """Return the changes (second, difference) of the capacity of each resource.

    An agent that accepts no more sessions counts until the last session on it has ended.
    """
    conditions, found = workload.conditions, defaultdict(list)
    left = dict(conditions.left)
    for outcome in replayed.outcomes:
        if outcome.started is None:
            continue
        ended = outcome.started + outcome.job.seconds
        for placement in outcome.placements:
            if placement.agent_id in left:
                left[placement.agent_id] = max(left[placement.agent_id], ended)
    for agent in workload.agents:
        begin = conditions.joined.get(agent.id, workload.begin)
        end = left.get(agent.id)
        for name, amount in total_capacity_of([agent]).items():
            found[name].append((begin, amount))
            if end is not None:
                found[name].append((end, -amount))
    return found


def _means(changes: Sequence[tuple[int, int]], edges: Floats) -> Floats:
    """Return the mean of a step function in each interval, given its changes."""
    if not changes:
        return np.zeros(len(edges) - 1)
    ordered = sorted(changes)
    times = np.array([at for at, _ in ordered], np.float64)
    levels = np.cumsum([difference for _, difference in ordered]).astype(np.float64)
    # The integral of the step function up to each change, and up to the last edge.
    last = max(times[-1], edges[-1])
    spans = np.diff(np.append(times, last))
    integral = np.concatenate([[0.0], np.cumsum(levels * spans)])
    at_edges = np.interp(edges, np.append(times, last), integral)
    means: Floats = np.diff(at_edges) / np.diff(edges)
    return means
