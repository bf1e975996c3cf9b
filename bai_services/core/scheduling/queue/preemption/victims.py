"""Choose the victims for a pending session: few sessions with a small loss.

*Loss* is the measure by which the option ``order`` compares sessions, such as their run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from ....cluster.devices import is_device_slot, thousandths
from ....resources import CPU as CPU_SLOT
from ....resources import MEM as MEM_SLOT
from ...placement import Mode, Placement, Placer, Request
from ...preemption.options import PreemptionOptions, VictimOrder
from ...preemption.rules import Rank, Rule, rule_of
from ..model import Certainty, RunningSession
from ..releases import Release
from ..reserve import count_releases_until_fit
from . import candidates as columns
from .candidates import Candidates, Ints, microseconds

Bools = NDArray[np.bool_]

# Maximum number of running sessions that a search tries to release for one pending session.
MAX_TRIED = 2_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pending session that does not fit now."""

    request: Request
    handle: int  # handle of the request in the placer
    rank: Rank
    # Running sessions that are not candidates: victims of other plans, and sessions that end soon.
    kept: frozenset[str] = frozenset()
    # Sessions of other users with the same priority that may be preempted by ``FAIR_SHARE``.
    over_share: frozenset[str] = frozenset()
    # Victims must have a priority below this; None: no limit.
    below_priority: int | None = None


@dataclass(frozen=True, slots=True)
class Victims:
    """The sessions to preempt, with their rules, and the placements that the preemption makes
    possible.
    """

    sessions: tuple[tuple[str, Rule], ...]
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    ``victims`` is None if no victims help. In this case, ``next_at`` is the time at which the next
    session has run long enough to be preempted, or None.
    """

    victims: Victims | None = None
    next_at: datetime | None = None


def find_victims(
    table: Candidates,
    probe: Placer,
    options: PreemptionOptions,
    wanted: Wanted,
    now: datetime,
) -> SearchResult:
    """Find victims for a pending session.

    ``probe`` must be a fork of the group's placer, because this function changes it. No victim is
    superfluous: the session fits after all of them have ended, but not if any victim continues.
    """
    rules = [rule_of(options, wanted.rank, rank) for rank in table.ranks]
    rows = table.rows()
    is_allowed = np.array([rule is not None for rule in rules], bool)
    if not len(rows) or not is_allowed.any():
        return SearchResult()
    rows = _eligible_rows(rows[is_allowed[rows[:, columns.RANK]]], table, rules, wanted)
    earliest = microseconds(now - timedelta(seconds=options.min_runtime_seconds))
    has_run = rows[:, columns.STARTED] <= earliest
    next_at = None
    if not has_run.all():
        first = rows[~has_run][:, columns.STARTED].min() - earliest
        next_at = now + timedelta(microseconds=int(first))
    rows = rows[has_run]
    if not len(rows):
        return SearchResult(next_at=next_at)
    ordered = _by_loss(rows, table, options.order)
    chosen = _release_until_fit(ordered, table, probe, wanted, options.order)
    if chosen is None:
        return SearchResult(next_at=next_at)
    sessions = _without_superfluous(chosen, probe, wanted)
    placements = probe.place(wanted.handle)
    assert placements is not None  # the pending session fits after the end of ``sessions``
    named = tuple((s.id, _rule(options, wanted, s)) for s in sessions)
    return SearchResult(Victims(named, placements))


def _rule(options: PreemptionOptions, wanted: Wanted, session: RunningSession) -> Rule:
    rank = Rank(session.priority, session.job_priority, session.scopes)
    rule = rule_of(options, wanted.rank, rank)
    assert rule is not None  # only sessions with a rule are candidates
    return rule


def _eligible_rows(
    rows: Ints, table: Candidates, rules: Sequence[Rule | None], wanted: Wanted
) -> Ints:
    """Drop the rows of sessions that must not be preempted although a rule applies."""
    if wanted.below_priority is not None:
        limit = wanted.below_priority
        is_below = np.array([rank.priority < limit for rank in table.ranks], bool)
        rows = rows[is_below[rows[:, columns.RANK]]]
    if wanted.kept:
        rows = rows[~np.isin(rows[:, columns.SESSION], table.numbers_of(wanted.kept))]
    if Rule.FAIR_SHARE in rules:
        is_shared = np.array([rule is Rule.FAIR_SHARE for rule in rules], bool)
        is_over = np.isin(rows[:, columns.SESSION], table.numbers_of(wanted.over_share))
        rows = rows[~is_shared[rows[:, columns.RANK]] | is_over]
    return rows


def _by_loss(rows: Ints, table: Candidates, order: VictimOrder) -> Ints:
    """Sort rows by priority, then by the loss of the session, both ascending."""
    priorities = np.array([rank.priority for rank in table.ranks], np.int64)
    if order is VictimOrder.OLDEST:
        loss = rows[:, columns.STARTED]
    elif order is VictimOrder.SMALLEST_RESOURCES:
        loss = rows[:, columns.SIZE]
    else:
        loss = -rows[:, columns.STARTED]
    by = np.lexsort((rows[:, columns.TIE], loss, priorities[rows[:, columns.RANK]]))
    return rows[by]


def _losses(ordered: Ints, order: VictimOrder) -> Ints:
    """Return the loss of each row; agents are compared by the sum of the losses of their rows."""
    if order is VictimOrder.OLDEST:
        return np.arange(1, len(ordered) + 1)
    if order is VictimOrder.SMALLEST_RESOURCES:
        return ordered[:, columns.SIZE]
    started = ordered[:, columns.STARTED]
    losses: Ints = started.max() - started  # run time minus the run time of the newest session
    return losses


def _release_until_fit(
    ordered: Ints, table: Candidates, probe: Placer, wanted: Wanted, order: VictimOrder
) -> list[RunningSession] | None:
    """Release sessions on ``probe`` until the request fits, on the best agents first.

    Return the released sessions, the smallest loss first. None: the request does not fit after all
    releases, or after ``MAX_TRIED``.
    """
    sessions: list[RunningSession] = []
    known: set[int] = set()
    ranked = _rank_agents(ordered, table, probe, wanted.request, order)
    if ranked is None:
        return None
    for numbers in _batches(ranked, wanted.request):
        batch = [n for n in numbers if n not in known]
        known.update(batch)
        sessions += [table.sessions[n] for n in batch]
        if len(sessions) > MAX_TRIED:
            sessions = sessions[:MAX_TRIED]
        trial = probe.fork()
        count = count_releases_until_fit(
            trial, wanted.handle, [_release_of(session) for session in sessions]
        )
        probe.recycle(trial)
        if count is not None:
            chosen = sessions[:count]
            for session in chosen:
                probe.release(session.placements)
            chosen_numbers = table.numbers_of(session.id for session in chosen)
            at = {table.sessions[n].id: _first(ordered, n) for n in chosen_numbers}
            return sorted(chosen, key=lambda session: at[session.id])
        if len(sessions) >= MAX_TRIED:
            break
    return None


def _first(ordered: Ints, number: int) -> int:
    """Return the position of the first row of a session."""
    return int(np.argmax(ordered[:, columns.SESSION] == number))


def _release_of(session: RunningSession) -> Release:
    return Release(0.0, session.started_at, session.id, session.placements, Certainty.KNOWN)


@dataclass(frozen=True, slots=True)
class _RankedAgents:
    """Agents on which the request fits after the end of sessions, the best first.

    The candidates on agent ``i`` are ``numbers[starts[i]:ends[i]]``, sorted by loss. A number is
    the position of a session in ``Candidates.sessions``. ``is_first`` marks the smallest sufficient
    number of first candidates of each agent.
    """

    numbers: Ints
    is_first: Bools
    starts: Ints
    ends: Ints


def _rank_agents(
    ordered: Ints, table: Candidates, probe: Placer, request: Request, order: VictimOrder
) -> _RankedAgents | None:
    """Rank the agents by the sessions that would have to end there; return None if no agent has
    enough resources.

    The keys are the highest priority of these sessions, then their number (only with
    ``FEWEST_SESSIONS``), then their total loss. ``ordered`` are the rows of the sessions that may
    be preempted, sorted by loss; a row is a session on one agent.
    """
    need = _need_of(request)
    free, row_of_agent = probe.free_totals(), probe.agent_rows()
    rows_of_agents = np.array([row_of_agent.get(a, -1) for a in table.agents], np.int64)
    agents = rows_of_agents[ordered[:, columns.AGENT]]
    amounts = ordered[:, [columns.CPU, columns.MEM, columns.DEVICES]]
    is_known = agents >= 0
    freed = np.zeros_like(free)
    np.add.at(freed, agents[is_known], amounts[is_known])
    is_enough: Bools = np.all((free + freed) >= need, axis=1)
    is_useful = is_known & is_enough[agents]
    if not is_useful.any():
        return None
    losses = _losses(ordered, order)[is_useful]
    rows, agents, amounts = ordered[is_useful], agents[is_useful], amounts[is_useful]
    # Sort the rows by agent, and by loss within each agent.
    by_agent = np.lexsort((np.arange(len(agents)), agents))
    rows, agents, losses = rows[by_agent], agents[by_agent], losses[by_agent]
    sums = np.cumsum(amounts[by_agent], axis=0)
    starts = np.flatnonzero(np.r_[True, agents[1:] != agents[:-1]])
    ends = np.r_[starts[1:], len(agents)]
    before = np.vstack([np.zeros((1, 3), np.int64), sums[:-1]])
    before -= np.repeat(before[starts], ends - starts, axis=0)
    is_first: Bools = np.any(before < (need - free)[agents], axis=1)
    priorities = np.array([rank.priority for rank in table.ranks], np.int64)
    of_rows = priorities[rows[:, columns.RANK]]
    highest = np.maximum.reduceat(np.where(is_first, of_rows, -1), starts)
    counts = np.add.reduceat(is_first.astype(np.int64), starts)
    total_loss = np.add.reduceat(np.where(is_first, losses, 0), starts)
    numbers = [counts] if order is VictimOrder.FEWEST_SESSIONS else []
    # The last key is the primary one.
    best = np.lexsort((agents[starts], total_loss, *numbers, highest))
    return _RankedAgents(rows[:, columns.SESSION], is_first, starts[best], ends[best])


def _batches(ranked: _RankedAgents, request: Request) -> Iterator[list[int]]:
    """Yield batches of session numbers in the order in which to try them.

    The first batch contains the sessions on the best agents; each further batch covers twice as
    many agents.
    """
    size = max(4, 2 * (request.kernels if request.mode is Mode.MULTI_NODE else 1))
    at = 0
    while at < len(ranked.starts):
        ends = ranked.ends[at : at + size]
        parts = [slice(*edges) for edges in zip(ranked.starts[at : at + size], ends, strict=True)]
        first, others = list[int](), list[int]()
        for part in parts:
            numbers, is_first = ranked.numbers[part], ranked.is_first[part]
            first += numbers[is_first].tolist()
            others += numbers[~is_first].tolist()
        yield list(dict.fromkeys(first + others))
        at += size
        size *= 2


def _need_of(request: Request) -> Ints:
    """Return the cpu, mem and device thousandths that a request needs on one agent."""
    together = request.kernels if request.mode is Mode.SINGLE_NODE else 1
    slots: Mapping[str, int] = request.slots
    devices = sum(thousandths(slot, n) for slot, n in slots.items() if is_device_slot(slot))
    amounts = (slots.get(CPU_SLOT, 0), slots.get(MEM_SLOT, 0), devices)
    return np.array([together * amount for amount in amounts], np.int64)


def _without_superfluous(
    chosen: Sequence[RunningSession], probe: Placer, wanted: Wanted
) -> list[RunningSession]:
    """Drop sessions that need not be preempted, the largest loss first; return the others.

    ``probe`` has released all sessions in ``chosen``. The returned sessions stay released.
    """
    needed = list(chosen)
    room = _Room(probe, wanted.request)
    has_changed = True
    while has_changed:
        has_changed = False
        for session in reversed(list(needed)):
            probe.allocate(session.placements)
            if room.may_fit_with(session) and probe.fits(wanted.handle):
                room.update(session)
                needed.remove(session)
                has_changed = True
            else:
                probe.release(session.placements)
    return needed


class _Room:
    """Upper bound of the number of kernels that fit on each agent of a placer.

    The bound is computed from the free totals of the agents, which is much faster than a search. If
    all kernels of the request must be on one agent, whole requests are counted instead of kernels.
    """

    def __init__(self, probe: Placer, request: Request) -> None:
        self._probe = probe
        need = _need_of(request)
        self._columns = np.flatnonzero(need > 0)
        self._need = need[self._columns]
        self._wanted = request.kernels if request.mode is Mode.MULTI_NODE else 1
        self._rows = probe.agent_rows()
        self._of_agents = self._compute(probe.free_totals())
        self._total = int(self._of_agents.sum())

    def _compute(self, totals: Ints) -> Ints:
        room: Ints = (totals[:, self._columns].clip(min=0) // self._need).min(axis=1)
        return room

    def _agents_of(self, session: RunningSession) -> list[int]:
        agents = {placement.agent_id for placement in session.placements}
        return sorted(self._rows[agent] for agent in agents if agent in self._rows)

    def may_fit_with(self, session: RunningSession) -> bool:
        """Return False if the request cannot fit after a change on the agents of a session."""
        rows = self._agents_of(session)
        room = self._compute(self._probe.free_totals(rows))
        return self._total - int(self._of_agents[rows].sum()) + int(room.sum()) >= self._wanted

    def update(self, session: RunningSession) -> None:
        """Record that the agents of a session have changed."""
        rows = self._agents_of(session)
        self._of_agents[rows] = self._compute(self._probe.free_totals(rows))
        self._total = int(self._of_agents.sum())
