"""Place sessions on the agents of one resource group."""

from __future__ import annotations

import copy
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ...cluster.devices import thousandths
from ...resources import CPU, MEM
from ..placement_options import Designation, Policy
from .compiled import columns as c
from .compiled.bundle import bundle, rebound
from .compiled.columns import NO_AGENT, Bools, Ints, ScoreCache, SearchResult
from .compiled.search import adjust_free, check_fits, copy_state, find_agent
from .encode import (
    NameTable,
    build_columns,
    encode_request,
    new_score_cache,
    read_agent,
    with_double_capacity,
    write_agent,
)
from .measures import fragmentation
from .model import AgentState, Placement, Refusal, Request
from .prepared_request import PreparedRequest
from .pricing.tables import Tables, costs_for, default_tables
from .refusals import explain

_POLICY_NUMBERS = MappingProxyType(
    {
        Policy.PRICED: c.PRICED,
        Policy.FGD: c.FGD,
        Policy.BEST_FIT: c.BEST_FIT,
        Policy.PACK: c.PACK,
        Policy.SPREAD: c.SPREAD,
        Policy.ROUND_ROBIN: c.ROUND_ROBIN,
        Policy.RANDOM: c.RANDOM,
    }
)
# Initial number of rows for requests with cached scores.
_INITIAL_ROWS = 64
# Maximum number of cached scores. When all rows are used, the cache grows up to this size; then a
# new request replaces the oldest one.
_MAX_SCORES = 8_000_000
# Maximum number of discarded forks that are stored for reuse.
_MAX_SPARE_FORKS = 2
# Attributes that do not change when a fork is reused; all others are copied from the placer.
_REUSED_ATTRIBUTES = (
    "_spare_forks",
    "_columns",
    "_owns_facts",
    "_cache",
    "_shapes",
    "_bundle",
    "_pointers",
)


class Placer:
    """Places sessions on the agents of ONE resource group; owns the columns of these agents.

    Deterministic: placers with equal arguments (agents in the same order) give equal results for
    equal calls. Among agents with equal scores, the first is chosen; a pass sorts agents by id. Not
    thread-safe.

    Typical use::

        placer = Placer(agents, Policy.PRICED, tables)
        handle = placer.prepare(request)         # once per distinct request
        placements = placer.place(handle)        # decides and allocates; None: does not fit now
        if placements is None:
            why = placer.refusal(handle)         # cached until the next change
        else:
            placer.release(placements)           # when the session ends
    """

    def __init__(
        self,
        agents: Sequence[AgentState],
        policy: Policy = Policy.PRICED,
        tables: Tables | None = None,
        *,
        seed: int = 0,
        last_agent: str = "",
    ) -> None:
        """Load the agents.

        ``tables`` are for the policies priced and fgd; by default, they are derived from the
        capacity of the agents. ``seed`` is for the policy random. ``last_agent`` (the agent chosen
        last) is for the policy round-robin.
        """
        self._policy_number = _POLICY_NUMBERS[policy]
        self._seed = seed
        self._tables = tables or default_tables(agents, policy)
        self._requests: list[PreparedRequest] = []  # by handle
        self._handles: dict[Request, int] = {}
        self.version = 0
        # By ``Request.beside``: placements that are kept free while such a request is placed.
        self._withheld: dict[tuple[str, ...], tuple[Placement, ...]] = {}
        self._spare_forks: list[Placer] = []
        self._set_agents(list(agents), last_agent)

    def _set_agents(self, agents: list[AgentState], last_agent: str) -> None:
        """Rebuild all columns from the agents; handles of prepared requests remain valid."""
        self._agents = agents
        self._index = {agent.id: n for n, agent in enumerate(agents)}
        self._device_index = [{d.id: j for j, d in enumerate(a.devices)} for a in agents]
        self._names = NameTable(self._tables.families, self._tables.models)
        self._columns = build_columns(agents, self._names)
        self._owns_facts = True
        self._requests = [
            replace(r, row=encode_request(r.request, self._names)) for r in self._requests
        ]
        self._costs = costs_for(self._tables, self._names)
        devices = self._columns.free.shape[1]
        self._cache = new_score_cache(
            agents=len(agents),
            devices=devices,
            shapes=_INITIAL_ROWS,
            picks=devices * max((r.kernels_per_search for r in self._requests), default=1),
            policy=self._policy_number,
            seed=self._seed,
        )
        self._cache.state[c.LAST_AGENT] = self._index.get(last_agent, -1)
        self._shapes = np.zeros((_INITIAL_ROWS, c.SHAPE_WIDTH), np.int64)
        self._bundle_arrays()
        self._row_of: dict[int, int] = {}  # by handle; in the order of first use
        self._single_search_rows: dict[int, int] = {}  # by handle; see ``fits_each``
        self._refusals: dict[int, tuple[int, Refusal]] = {}
        self._reset_empty_group()

    def _bundle_arrays(self) -> None:
        """Bundle the arrays for the search; call this after replacing any of the arrays."""
        self._bundle = bundle(self._columns, self._costs, self._cache, self._shapes)
        self._pointers = self._bundle.pointers
        self._layout = object()  # placers that share this object have arrays of the same sizes

    def _reset_empty_group(self) -> None:
        self._empty_group: Placer | None = None
        self._fits_when_empty: dict[int, bool] = {}
        self._never_fitting: set[int] = set()

    @property
    def last_agent(self) -> str:
        """Id of the agent chosen last, after which round-robin continues; empty if none."""
        n = int(self._cache.state[c.LAST_AGENT])
        return self._agents[n].id if n >= 0 else ""

    # ---- Requests ----

    def prepare(self, request: Request) -> int:
        """Return the handle of a request. Equal requests share a handle. Handles are also valid in
        later forks.

        Raises
        ------
        InvalidRequest
            If the request has more than ``MAX_NEEDS`` device slots.
        """
        handle = self._handles.get(request)
        if handle is not None:
            return handle
        prepared = PreparedRequest.of(request, self._names)
        picks = prepared.kernels_per_search * self._columns.free.shape[1]
        if picks > len(self._cache.picks):
            self._cache = self._cache._replace(picks=np.zeros((picks, 4), np.int64))
            self._bundle_arrays()
        self._requests.append(prepared)
        self._handles[request] = handle = len(self._requests) - 1
        return handle

    def _new_row(self, handle: int) -> int:
        """Return a row for the scores of a request.

        If all rows are used, double their number; at ``_MAX_SCORES``, evict the oldest request.
        """
        if len(self._row_of) < len(self._shapes):
            row = len(self._row_of)
        elif len(self._shapes) * len(self._agents) < _MAX_SCORES:
            row = len(self._shapes)
            self._cache = with_double_capacity(self._cache)
            self._shapes = np.concatenate([self._shapes, np.zeros_like(self._shapes)])
            self._bundle_arrays()
        else:
            row = self._row_of.pop(next(iter(self._row_of)))
        self._row_of[handle] = row
        self._single_search_rows = {}
        self._shapes[row] = self._requests[handle].row
        self._cache.read_at[row] = -1
        return row

    # ---- Searches ----

    def place(self, handle: int) -> tuple[Placement, ...] | None:
        """Choose and allocate placements for all kernels of a request.

        Return one placement per kernel, in the order main1, sub1, sub2 …; if a kernel does not fit
        now, return None and allocate nothing.
        """
        if self._withheld and (withheld := self._withheld_from(handle)):
            with self._without(withheld):
                return self._place(handle)
        return self._place(handle)

    def _place(self, handle: int) -> tuple[Placement, ...] | None:
        prepared = self._requests[handle]
        if prepared.searches == 1:
            result = self._search(handle, is_allocating=True)
            if result[0] < 0:
                return None
            self.version += 1
            return prepared.placements(self._agents[result[0]], result, self._cache.picks)
        version = self.version
        placements = self._place_kernels(handle)
        if len(placements) < prepared.searches:
            self._undo(placements, version)
            return None
        return tuple(placements)

    def fits(self, handle: int) -> bool:
        """Return whether ``place`` would succeed now, without changing anything."""
        return self.count_fitting(handle) == self._requests[handle].request.kernels

    def fits_each(self, handles: Sequence[int]) -> list[bool]:
        """Return ``fits`` for each request; all requests with a single search share one call."""
        checked = {n: self.fits(n) for n in handles if n not in self._single_search_rows}
        if checked:
            # ``checked`` contains the requests that need several searches or lists of agents (see
            # ``is_single_search``), and the requests that are newer than the last rebuild of
            # ``_single_search_rows``.
            if any(self._requests[n].is_single_search for n in checked):
                rows = self._row_of.items()
                self._single_search_rows = {
                    n: row for n, row in rows if self._requests[n].is_single_search
                }
            rest = iter(self.fits_each([n for n in handles if n not in checked]))
            return [checked[n] if n in checked else next(rest) for n in handles]
        if not self._withheld:
            return self._check_rows(handles)
        found: dict[int, bool] = {}
        by_withheld: dict[tuple[Placement, ...], list[int]] = {}
        for n in handles:
            by_withheld.setdefault(self._withheld_from(n), []).append(n)
        for withheld, alike in by_withheld.items():
            with self._without(withheld):
                found.update(zip(alike, self._check_rows(alike), strict=True))
        return [found[n] for n in handles]

    def _check_rows(self, handles: Sequence[int]) -> list[bool]:
        fits: Bools = np.empty(len(handles), np.bool_)
        rows_checked = np.array([self._single_search_rows[n] for n in handles], np.int64)
        check_fits(self._pointers, rows_checked, fits)
        results: list[bool] = fits.tolist()
        return results

    def count_fitting(self, handle: int) -> int:
        """Return the number of kernels of a request that fit now."""
        if self._withheld and (withheld := self._withheld_from(handle)):
            with self._without(withheld):
                return self._count_fitting(handle)
        return self._count_fitting(handle)

    def _count_fitting(self, handle: int) -> int:
        prepared = self._requests[handle]
        if prepared.searches == 1:
            fits = self._search(handle, is_allocating=False)[0] >= 0
            return prepared.request.kernels if fits else 0
        version = self.version
        placements = self._place_kernels(handle)
        self._undo(placements, version)
        return len(placements)

    def has_spare_cpu(self) -> bool:
        """Return whether any schedulable agent has free cpu."""
        agents = self._columns.agents
        return bool(((agents[:, c.OPEN] == 1) & (agents[:, c.CPU] > 0)).any())

    def agent_rows(self) -> dict[str, int]:
        """Return the row of each agent in ``free_totals``."""
        return dict(self._index)

    def free_totals(self, rows: Sequence[int] | slice = slice(None)) -> Ints:
        """Return the free cpu, mem and device thousandths of each agent, as rows of a new array.

        The amounts of an agent that accepts no sessions are negative.
        """
        agents = self._columns.agents[rows]
        devices = self._columns.free[rows].clip(min=0).sum(axis=1)
        totals: Ints = np.column_stack([agents[:, c.CPU], agents[:, c.MEM], devices])
        totals[agents[:, c.OPEN] != 1] = c.UNFIT
        return totals

    def _place_kernels(self, handle: int) -> list[Placement]:
        """Place kernels one by one until one does not fit; ``_undo`` reverts the placements."""
        prepared = self._requests[handle]
        self._state_before = self._cache.state[[c.LAST_AGENT, c.RANDOM_STATE]]
        placements: list[Placement] = []
        while len(placements) < prepared.searches:
            result = self._search(handle, is_allocating=True)
            if result[0] < 0:
                break
            self.version += 1
            agent = self._agents[result[0]]
            placements += prepared.placements(agent, result, self._cache.picks)
        return placements

    def _undo(self, placements: Sequence[Placement], version: int) -> None:
        self.release(placements)
        self._cache.state[[c.LAST_AGENT, c.RANDOM_STATE]] = self._state_before
        self.version = version

    def _search(self, handle: int, *, is_allocating: bool) -> SearchResult:
        row = self._row_of.get(handle)
        if row is None:
            row = self._new_row(handle)
        prepared = self._requests[handle]
        if not prepared.has_agent_lists:
            found: SearchResult = find_agent(self._pointers, row, is_allocating)
            return found
        request, state = prepared.request, self._cache.state
        state[c.DESIGNATED_COUNT] = self._list_agents(c.DESIGNATED, request.designated_agents)
        state[c.AVOID_COUNT] = self._list_agents(c.AVOID, request.avoid)
        state[c.STRICT] = request.designation == Designation.STRICT
        result = NO_AGENT
        if state[c.DESIGNATED_COUNT] or not (request.designated_agents and state[c.STRICT]):
            result = find_agent(self._pointers, row, is_allocating)
        state[c.DESIGNATED_COUNT] = state[c.AVOID_COUNT] = 0
        return result

    def _list_agents(self, which: int, agent_ids: Iterable[str]) -> int:
        """Write the rows of agents to an agent list of the search; return the number of agents."""
        rows = sorted({self._index[a] for a in agent_ids if a in self._index})
        self._cache.agent_lists[which, : len(rows)] = rows
        return len(rows)

    def fits_when_empty(self, handle: int) -> bool:
        """Return whether a request would fit if all agents were empty, alive, schedulable and
        healthy.
        """
        fits = self._fits_when_empty.get(handle)
        if fits is None:
            if self._empty_group is None:
                self._empty_group = Placer(
                    [a.fully_available() for a in self._agents], Policy.BEST_FIT
                )
            empty = self._empty_group
            fits = empty.fits(empty.prepare(self._requests[handle].request))
            self._fits_when_empty[handle] = fits
            if not fits:
                self._never_fitting.add(handle)
        return fits

    def never_fitting(self, handles: Collection[int]) -> Collection[int]:
        """Return the handles for which ``fits_when_empty`` is false.

        The result may contain handles that are not in ``handles``.
        """
        if len(self._fits_when_empty) < len(self._requests):
            for handle in handles:
                self.fits_when_empty(handle)
        return self._never_fitting

    def refusal(self, handle: int) -> Refusal:
        """Return why a request does not fit, with numbers; cached until the next change."""
        cached = self._refusals.get(handle)
        if cached is None or cached[0] != self.version:
            prepared = self._requests[handle]
            fitting = self.count_fitting(handle) if prepared.searches > 1 else 0
            with self._without(self._withheld_from(handle)):
                why = explain(self._agents, self._columns, prepared.request, prepared.row, fitting)
            cached = self._refusals[handle] = (self.version, why)
        return cached[1]

    # ---- Withheld parts of agents ----

    def withhold(self, beside: tuple[str, ...], placements: tuple[Placement, ...]) -> None:
        """Keep placements free while requests with this ``Request.beside`` are placed.

        The withheld placements count as allocated during each search, and only then. They may
        exceed the free capacity.
        """
        if self._withheld.get(beside, ()) == placements:
            return
        self._withheld[beside] = placements
        if not placements:
            del self._withheld[beside]
        self.version += 1

    def withhold_like(self, other: Placer) -> None:
        """Withhold the same placements as another placer."""
        self._withheld = dict(other._withheld)

    @property
    def is_withholding(self) -> bool:
        """Whether placements are withheld from any request."""
        return bool(self._withheld)

    def withheld_sets(self) -> list[tuple[str, ...]]:
        """Return the values of ``Request.beside`` for which placements are withheld."""
        return list(self._withheld)

    def _withheld_from(self, handle: int) -> tuple[Placement, ...]:
        return self._withheld.get(self._requests[handle].request.beside, ())

    @contextmanager
    def _without(self, withheld: tuple[Placement, ...]) -> Iterator[None]:
        """Count placements as allocated in the body of a ``with`` statement."""
        if not withheld:
            yield
            return
        version = self.version
        self._adjust(withheld, -1)
        start = self.version
        yield
        changes = self.version - start
        self._adjust(withheld, 1)
        self.version = version + changes

    # ---- External changes ----

    def allocate(self, placements: Iterable[Placement]) -> None:
        """Record placements that were decided elsewhere; they may exceed the free capacity."""
        self._adjust(placements, -1)

    def release(self, placements: Iterable[Placement]) -> None:
        """Release placements; skip agents and devices that no longer exist."""
        self._adjust(placements, 1)

    def set_to_minimum(self, agent_ids: Iterable[str], one: Placer, other: Placer) -> None:
        """Set the free capacity of agents to the minimum of two forks of the same placer."""
        for n in (self._index[a] for a in agent_ids if a in self._index):
            own, first, second = self._columns, one._columns, other._columns
            for column in (c.CPU, c.MEM):
                own.agents[n, column] = min(first.agents[n, column], second.agents[n, column])
            np.minimum(first.free[n], second.free[n], out=own.free[n])
            if (own.facts[n, :, c.IN_FORCE] != c.ANY).any():
                one_share, other_share = (f.facts[n, :, c.IN_FORCE] for f in (first, second))
                is_conflict = (one_share > 0) & (other_share > 0) & (one_share != other_share)
                shares = np.where(
                    is_conflict, c.UNMATCHABLE_SHARE, np.maximum(one_share, other_share)
                )
                own.facts[n, :, c.IN_FORCE] = shares
            self._log_change(n)

    def _adjust(self, placements: Iterable[Placement], sign: int) -> None:
        pointers = self._pointers
        for placement in placements:
            n = self._index.get(placement.agent_id)
            if n is None:
                continue
            slots, device_index = placement.slots, self._device_index[n]
            cpu, mem = sign * slots.get(CPU, 0), sign * slots.get(MEM, 0)
            last, amount = -1, 0
            for device in placement.devices:
                j = device_index.get(device.device_id)
                if j is None:
                    continue
                if last >= 0:
                    adjust_free(pointers, n, last, 0, 0, amount, False)
                last, amount = j, sign * thousandths(device.slot, device.amount)
            adjust_free(pointers, n, last, cpu, mem, amount, True)
            self.version += 1

    def _log_change(self, n: int) -> None:
        state = self._cache.state
        self._cache.log[int(state[c.LOG_HEAD]) % len(self._cache.log)] = n | c.GREW
        state[c.LOG_HEAD] += 1
        self.version += 1

    def update(self, agent: AgentState) -> None:
        """Replace the state of one agent (capacity, usage, health, schedulable), or add it."""
        n = self._index.get(agent.id)
        if n is None or len(agent.devices) > self._columns.free.shape[1]:
            agents = [a for a in self.agents() if a.id != agent.id]
            insort(agents, agent, key=lambda a: a.id)
            self._rebuild(agents)
            return
        if agent.fully_available() != self._agents[n].fully_available():
            self._reset_empty_group()
        if not self._owns_facts:
            self._columns = self._columns._replace(facts=self._columns.facts.copy())
            self._owns_facts = True
            self._bundle_arrays()
        write_agent(self._columns, n, agent, self._names)
        self._agents[n] = agent
        self._device_index[n] = {d.id: j for j, d in enumerate(agent.devices)}
        if max(len(self._names.families), len(self._names.models)) > min(self._costs.table.shape):
            self._costs = costs_for(self._tables, self._names)
            self._bundle_arrays()
        self._log_change(n)

    def remove(self, agent_id: str) -> None:
        if agent_id in self._index:
            self._rebuild([a for a in self.agents() if a.id != agent_id])

    def _rebuild(self, agents: list[AgentState]) -> None:
        self._set_agents(agents, self.last_agent)
        self.version += 1

    def set_tables(self, tables: Tables) -> None:
        self._tables = tables
        self._rebuild(self.agents())

    # ---- Forks ----

    def fork(self) -> Placer:
        """Return an independent copy for look-ahead; this takes as long as copying its arrays."""
        while self._spare_forks:
            spare = self._spare_forks.pop()
            has_facts = spare._owns_facts or spare._columns.facts is self._columns.facts
            if spare._layout is self._layout and has_facts:
                return self._reuse(spare)
        other = copy.copy(self)
        other._spare_forks = []
        facts = self._columns.facts
        if (facts[:, :, c.IN_FORCE] == c.ANY).all():
            self._owns_facts = other._owns_facts = False
        else:
            # Placements change the fact IN_FORCE, so each placer needs its own copy of the facts.
            facts, other._owns_facts = facts.copy(), True
        other._columns = self._columns._replace(
            facts=facts,
            agents=self._columns.agents.copy(),
            free=self._columns.free.copy(),
            sums=self._columns.sums.copy(),
            tallies=self._columns.tallies.copy(),
        )
        other._cache = ScoreCache(*(column.copy() for column in self._cache))
        other._shapes = self._shapes.copy()
        other._bundle = rebound(self._bundle, other._columns, other._cache, other._shapes)
        other._pointers = other._bundle.pointers
        other._copy_shared_lists()
        return other

    def recycle(self, fork: Placer) -> None:
        """Store an unused fork of this placer; a later ``fork`` may reuse its arrays."""
        if len(self._spare_forks) < _MAX_SPARE_FORKS:
            self._spare_forks.append(fork)

    def _reuse(self, spare: Placer) -> Placer:
        """Turn a recycled fork into a copy of the current state."""
        own = {name: getattr(spare, name) for name in _REUSED_ATTRIBUTES}
        spare.__dict__.update(self.__dict__)
        spare.__dict__.update(own)
        copy_state(self._pointers, spare._pointers)
        spare._copy_shared_lists()
        return spare

    def _copy_shared_lists(self) -> None:
        """Copy the lists and dictionaries that this fork still shares with its original placer."""
        self._agents = list(self._agents)
        self._device_index = list(self._device_index)
        self._requests, self._handles = list(self._requests), dict(self._handles)
        self._row_of, self._refusals = dict(self._row_of), dict(self._refusals)
        self._fits_when_empty = dict(self._fits_when_empty)
        self._never_fitting = set(self._never_fitting)
        self._withheld = dict(self._withheld)

    def fork_for_thread(self) -> Placer:
        """Return a fork for another thread; this placer may change while the fork is in use."""
        other = self.fork()
        other._names = self._names.copy()
        other._empty_group = None
        return other

    def fragmentation(self) -> float:
        """Return the fraction of all device capacity that is free but unusable for a typical
        request.
        """
        return fragmentation(self._columns, self._costs)

    def agent(self, agent_id: str) -> AgentState | None:
        """Return an agent in its current state; None if there is no such agent."""
        n = self._index.get(agent_id)
        return None if n is None else read_agent(self._columns, n, self._agents[n])

    def agents(self) -> list[AgentState]:
        """Return the agents in their current state, in their order."""
        return [read_agent(self._columns, n, agent) for n, agent in enumerate(self._agents)]
