"""Choose among the agents of one resource group, stored as integer columns."""

from __future__ import annotations

import copy
from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from ...cluster.devices import DeviceAmount, is_device_slot, thousandths
from ...resources import CPU, MEM, ResourceSlots
from . import columns as c
from .bundle import bundle, copied
from .columns import Bools, Ints, Memory
from .encode import Names, build_columns, grown, new_memory, read_agent, shape_row, write_agent
from .measures import fragmented
from .model import AgentState, Designation, Mode, Placement, Policy, Refusal, Request
from .refusals import explain
from .search import book, copy_state, decide, fit_all
from .tables import Tables, costs_for, plain_tables

_RULES = MappingProxyType(
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
# Initial number of requests with cached scores, and the maximum of cached (request, agent) pairs.
_ROWS = 64
_MAX_SCORES = 8_000_000
# Maximum number of discarded forks that are kept for reuse, and the attributes that are reused.
_MAX_SPARES = 2
_OF_FORK = ("_spares", "_columns", "_owns_facts", "_memory", "_shapes", "_bundle", "_places")


@dataclass(frozen=True, slots=True)
class _Ask:
    """A prepared request: the inputs of its searches, computed once."""

    request: Request
    row: Ints
    rounds: int  # searches: one if the kernels go together, else one per kernel
    plain: ResourceSlots  # cpu and mem of one kernel
    together: int  # kernels of one search
    slots: tuple[str, ...]  # its device slots, in the order of its needs
    units: tuple[int, ...]  # thousandths of a device that one unit of each slot is
    is_free: bool  # neither designated nor barred agents

    @property
    def is_plain(self) -> bool:
        """Whether one search among all agents is enough."""
        return self.is_free and self.rounds == 1


# The row of the agent, or -1; the number of picks; of the first: need, device, quantity.
_Found = tuple[int, int, int, int, int]
_NOTHING: _Found = (-1, 0, 0, 0, 0)


class Placer:
    """Places sessions on the agents of ONE resource group; owns its integer columns.

    Deterministic: the same agents in the same order, the same tables and the same calls give the
    same answers. Ties go to the agent that comes first; a pass passes agents sorted by id. Not
    thread-safe.

    Typical use::

        placer = Placer(agents, Policy.PRICED, tables)
        shape = placer.prepare(request)          # once per distinct request
        placements = placer.place(shape)         # decides and takes; None: no room now
        if placements is None:
            why = placer.refusal(shape)          # memoised until something changes
        placer.release(placements)               # releases exactly what was taken
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
        """Load the agents; ``tables`` are used by the policies priced and fgd only.

        Without tables, defaults from the agents' proportions are used. ``seed`` is used by the
        policy random only; ``last_agent``, the agent chosen last, by round-robin only.
        """
        self._policy = policy
        self._rule = _RULES[policy]
        self._seed = seed
        self._tables = tables or plain_tables(agents, policy)
        self._asks: list[_Ask] = []
        self._ask_of: dict[Request, int] = {}
        self.version = 0
        self._spares: list[Placer] = []
        self._set_agents(list(agents), last_agent)

    def _set_agents(self, agents: list[AgentState], last_agent: str) -> None:
        """Rebuild everything from the agents; handles of prepared requests remain valid."""
        self._agents = agents
        self._index = {agent.id: n for n, agent in enumerate(agents)}
        self._device_index = [{d.id: j for j, d in enumerate(a.devices)} for a in agents]
        self._names = Names(self._tables.families, self._tables.models)
        self._columns = build_columns(agents, self._names)
        self._owns_facts = True
        self._asks = [replace(a, row=shape_row(a.request, self._names)) for a in self._asks]
        self._costs = costs_for(self._tables, self._names)
        width = self._columns.free.shape[1]
        most = max((ask.together for ask in self._asks), default=1)
        self._memory = new_memory(len(agents), width, _ROWS, most * width, self._rule, self._seed)
        self._memory.state[c.CURSOR] = self._index.get(last_agent, -1)
        self._shapes = np.zeros((_ROWS, c.SHAPE_WIDTH), np.int64)
        self._tie()
        self._row_of: dict[int, int] = {}  # prepared request to its row, oldest first
        self._plain: dict[int, int] = {}  # all that ``fits_all`` needs of plain requests
        self._refusals: dict[int, tuple[int, Refusal]] = {}
        self._forget_ideal()

    def _tie(self) -> None:
        """Bundle the arrays for the search; call it after any of them has been replaced."""
        self._bundle = bundle(self._columns, self._costs, self._memory, self._shapes)
        self._places = self._bundle.places
        self._layout = object()  # equal in placers whose arrays have equal sizes

    def _forget_ideal(self) -> None:
        self._ideal: Placer | None = None
        self._ever: dict[int, bool] = {}
        self._never: set[int] = set()

    @property
    def last_agent(self) -> str:
        """The agent chosen last, from which round-robin continues; empty: none yet."""
        n = int(self._memory.state[c.CURSOR])
        return self._agents[n].id if n >= 0 else ""

    # ---- Requests ----

    def prepare(self, request: Request) -> int:
        """Return the handle of a request; equal requests share one. It is valid in later forks.

        Raises
        ------
        InvalidRequest
            If it requests more device families than one session may.
        """
        known = self._ask_of.get(request)
        if known is not None:
            return known
        row = shape_row(request, self._names)
        slots = tuple(slot for slot in request.slots if is_device_slot(slot))
        ask = _Ask(
            request,
            row,
            request.kernels if request.mode == Mode.MULTI_NODE else 1,
            ResourceSlots({s: n for s, n in request.slots.items() if not is_device_slot(s)}),
            int(row[c.TOGETHER]),
            slots,
            tuple(thousandths(slot, 1) for slot in slots),
            not request.designated_agents and not request.avoid,
        )
        needed = ask.together * self._columns.free.shape[1]
        if needed > len(self._memory.picks):
            self._memory = self._memory._replace(picks=np.zeros((needed, 4), np.int64))
            self._tie()
        self._asks.append(ask)
        self._ask_of[request] = len(self._asks) - 1
        return len(self._asks) - 1

    def _new_row(self, shape: int) -> int:
        """Return a row for the scores of a request; the oldest row is evicted when all are in
        use.
        """
        if len(self._row_of) < len(self._shapes):
            row = len(self._row_of)
        elif len(self._shapes) * len(self._agents) < _MAX_SCORES:
            row = len(self._shapes)
            self._memory = grown(self._memory)
            self._shapes = np.concatenate([self._shapes, np.zeros_like(self._shapes)])
            self._tie()
        else:
            row = self._row_of.pop(next(iter(self._row_of)))
        self._row_of[shape] = row
        self._plain = {}
        self._shapes[row] = self._asks[shape].row
        self._memory.seen[row] = -1
        return row

    # ---- Decisions ----

    def place(self, shape: int) -> tuple[Placement, ...] | None:
        """Take room for all kernels of a request, or for none of them.

        Return one placement per kernel, in the order main1, sub1, sub2 … Return None, without any
        change, when there is no room now.
        """
        ask = self._asks[shape]
        if ask.rounds == 1:
            found = self._decide(shape, True)
            if found[0] < 0:
                return None
            self.version += 1
            return self._taken(ask, found)
        version = self.version
        taken = self._rounds(shape)
        if len(taken) < ask.rounds:
            self._undo(taken, version)
            return None
        return tuple(taken)

    def fits(self, shape: int) -> bool:
        """Return whether ``place`` would succeed now, without changing anything."""
        return self.room(shape) == self._asks[shape].request.kernels

    def fits_all(self, shapes: Sequence[int]) -> list[bool]:
        """Return ``fits`` for each of many requests, at little more than the cost of one."""
        single = {n: self.fits(n) for n in shapes if n not in self._plain}
        if single:
            # These have no row yet, or need more than one search.
            if any(self._asks[n].is_plain for n in single):
                rows = self._row_of.items()
                self._plain = {n: row for n, row in rows if self._asks[n].is_plain}
            rest = iter(self.fits_all([n for n in shapes if n not in single]))
            return [single[n] if n in single else next(rest) for n in shapes]
        found: Bools = np.empty(len(shapes), np.bool_)
        fit_all(self._places, np.array([self._plain[n] for n in shapes], np.int64), found)
        answers: list[bool] = found.tolist()
        return answers

    def room(self, shape: int) -> int:
        """Return how many kernels of a request fit now, at most all of them."""
        ask = self._asks[shape]
        if ask.rounds == 1:
            return ask.request.kernels if self._decide(shape, False)[0] >= 0 else 0
        version = self.version
        found = self._rounds(shape)
        self._undo(found, version)
        return len(found)

    def has_spare(self) -> bool:
        """Return whether any schedulable agent has spare cpu."""
        agents = self._columns.agents
        return bool(((agents[:, c.OPEN] == 1) & (agents[:, c.CPU] > 0)).any())

    def _rounds(self, shape: int) -> list[Placement]:
        """Place kernels one by one, as many as fit."""
        ask = self._asks[shape]
        self._before = self._memory.state[[c.CURSOR, c.DRAWS]]
        taken: list[Placement] = []
        while len(taken) < ask.rounds:
            found = self._decide(shape, True)
            if found[0] < 0:
                break
            self.version += 1
            taken += self._taken(ask, found)
        return taken

    def _undo(self, placements: Sequence[Placement], version: int) -> None:
        self.release(placements)
        self._memory.state[[c.CURSOR, c.DRAWS]] = self._before
        self.version = version

    def _decide(self, shape: int, takes: bool) -> _Found:
        """Return the result of one search."""
        row = self._row_of.get(shape)
        if row is None:
            row = self._new_row(shape)
        ask = self._asks[shape]
        found = _NOTHING
        if ask.is_free:
            free: _Found = decide(self._places, row, takes)
            return free
        request, state = ask.request, self._memory.state
        state[c.NAMED] = self._list(c.AMONG, request.designated_agents)
        state[c.BARRED] = self._list(c.AGAINST, request.avoid)
        state[c.STRICT] = request.designation == Designation.STRICT
        if state[c.NAMED] or not (request.designated_agents and state[c.STRICT]):
            found = decide(self._places, row, takes)
        state[c.NAMED] = state[c.BARRED] = 0
        return found

    def _list(self, which: int, agents: Iterable[str]) -> int:
        """Pass agents to the search in their order; return how many of them are in this group."""
        found = sorted({self._index[a] for a in agents if a in self._index})
        self._memory.listed[which, : len(found)] = found
        return len(found)

    def _taken(self, ask: _Ask, found: _Found) -> tuple[Placement, ...]:
        """Return what the last decision took on an agent."""
        n, count, need, j, amount = found
        agent = self._agents[n]
        if not count:
            return (Placement(agent.id, ask.plain),) * ask.together
        devices, slots, units = agent.devices, ask.slots, ask.units
        if count == 1:  # the common case: no access to the rows
            only = DeviceAmount(devices[j].id, slots[need], amount // units[need])
            return (Placement(agent.id, ask.plain, (only,)),)
        picks = self._memory.picks[:count].tolist()
        if ask.together == 1:
            taken = [
                DeviceAmount(devices[j].id, slots[need], amount // units[need])
                for _, need, j, amount in picks
            ]
            return (Placement(agent.id, ask.plain, tuple(taken)),)
        of_kernel: list[list[DeviceAmount]] = [[] for _ in range(ask.together)]
        for kernel, need, j, amount in picks:
            of_kernel[kernel].append(
                DeviceAmount(devices[j].id, slots[need], amount // units[need])
            )
        return tuple([Placement(agent.id, ask.plain, tuple(part)) for part in of_kernel])

    def can_ever(self, shape: int) -> bool:
        """Return whether the group could hold the request if it was empty and entirely healthy."""
        known = self._ever.get(shape)
        if known is None:
            if self._ideal is None:
                self._ideal = Placer([a.at_best() for a in self._agents], Policy.BEST_FIT)
            ideal = self._ideal
            known = ideal.fits(ideal.prepare(self._asks[shape].request))
            self._ever[shape] = known
            if not known:
                self._never.add(shape)
        return known

    def hopeless(self, shapes: Collection[int]) -> Collection[int]:
        """Return requests for which ``can_ever`` is false: all such requests among these, maybe
        others.
        """
        if len(self._ever) < len(self._asks):
            for shape in shapes:
                self.can_ever(shape)
        return self._never

    def refusal(self, shape: int) -> Refusal:
        """Return why there is no room, with numbers; memoised until something changes."""
        known = self._refusals.get(shape)
        if known is None or known[0] != self.version:
            ask = self._asks[shape]
            room = self.room(shape) if ask.rounds > 1 else 0
            why = explain(self._agents, self._columns, ask.request, ask.row, room)
            known = self._refusals[shape] = (self.version, why)
        return known[1]

    # ---- External changes ----

    def take(self, placements: Iterable[Placement]) -> None:
        """Record placements that were decided elsewhere; they may exceed what is free."""
        self._book(placements, -1)

    def release(self, placements: Iterable[Placement]) -> None:
        """Release exactly what placements took; skip agents and devices that no longer exist."""
        self._book(placements, 1)

    def lower(self, agent_ids: Iterable[str], one: Placer, other: Placer) -> None:
        """Set what is free on agents to the minimum of two other placers (forks of the same
        one).
        """
        for n in (self._index[a] for a in agent_ids if a in self._index):
            mine, first, second = self._columns, one._columns, other._columns
            for column in (c.CPU, c.MEM):
                mine.agents[n, column] = min(first.agents[n, column], second.agents[n, column])
            np.minimum(first.free[n], second.free[n], out=mine.free[n])
            if (mine.facts[n, :, c.IN_FORCE] != c.ANY).any():
                one_share, other_share = (f.facts[n, :, c.IN_FORCE] for f in (first, second))
                is_torn = (one_share > 0) & (other_share > 0) & (one_share != other_share)
                alike = np.maximum(one_share, other_share)
                mine.facts[n, :, c.IN_FORCE] = np.where(is_torn, c.NOBODYS, alike)
            self._note(n)

    def _book(self, placements: Iterable[Placement], sign: int) -> None:
        places = self._places
        for placement in placements:
            n = self._index.get(placement.agent_id)
            if n is None:
                continue
            slots, of_agent = placement.slots, self._device_index[n]
            cpu, mem = sign * slots.get(CPU, 0), sign * slots.get(MEM, 0)
            last, amount = -1, 0
            for device in placement.devices:
                j = of_agent.get(device.device_id)
                if j is None:
                    continue
                if last >= 0:
                    book(places, n, last, 0, 0, amount, False)
                last, amount = j, sign * thousandths(device.slot, device.amount)
            book(places, n, last, cpu, mem, amount, True)
            self.version += 1

    def _note(self, n: int) -> None:
        state = self._memory.state
        self._memory.log[int(state[c.HEAD]) % len(self._memory.log)] = n | c.GREW
        state[c.HEAD] += 1
        self.version += 1

    def update(self, agent: AgentState) -> None:
        """Set the state of one agent (capacity, usage, health, schedulable), or add a new one."""
        n = self._index.get(agent.id)
        if n is None or len(agent.devices) > self._columns.free.shape[1]:
            agents = [a for a in self.agents() if a.id != agent.id]
            insort(agents, agent, key=lambda a: a.id)
            self._rebuild(agents)
            return
        if agent.at_best() != self._agents[n].at_best():
            self._forget_ideal()
        if not self._owns_facts:
            self._columns = self._columns._replace(facts=self._columns.facts.copy())
            self._owns_facts = True
            self._tie()
        write_agent(self._columns, n, agent, self._names)
        self._agents[n] = agent
        self._device_index[n] = {d.id: j for j, d in enumerate(agent.devices)}
        if max(len(self._names.families), len(self._names.models)) > min(self._costs.table.shape):
            self._costs = costs_for(self._tables, self._names)
            self._tie()
        self._note(n)

    def remove(self, agent_id: str) -> None:
        """Remove an agent."""
        if agent_id in self._index:
            self._rebuild([a for a in self.agents() if a.id != agent_id])

    def _rebuild(self, agents: list[AgentState]) -> None:
        self._set_agents(agents, self.last_agent)
        self.version += 1

    def set_tables(self, tables: Tables) -> None:
        """Replace the tables."""
        self._tables = tables
        self._rebuild(self.agents())

    def fork(self) -> Placer:
        """Return an independent copy for look-ahead; it costs a copy of the columns."""
        while self._spares:
            spare = self._spares.pop()
            has_facts = spare._owns_facts or spare._columns.facts is self._columns.facts
            if spare._layout is self._layout and has_facts:
                return self._again(spare)
        other = copy.copy(self)
        other._spares = []
        facts = self._columns.facts
        if (facts[:, :, c.IN_FORCE] == c.ANY).all():
            self._owns_facts = other._owns_facts = False
        else:
            # These change with every placement.
            facts, other._owns_facts = facts.copy(), True
        other._columns = self._columns._replace(
            facts=facts,
            agents=self._columns.agents.copy(),
            free=self._columns.free.copy(),
            sums=self._columns.sums.copy(),
            tallies=self._columns.tallies.copy(),
        )
        other._memory = Memory(*(column.copy() for column in self._memory))
        other._shapes = self._shapes.copy()
        other._bundle = copied(self._bundle, other._columns, other._memory, other._shapes)
        other._places = other._bundle.places
        other._own()
        return other

    def spare(self, fork: Placer) -> None:
        """Recycle a fork of this placer that is no longer used: the next fork is cheaper."""
        if len(self._spares) < _MAX_SPARES:
            self._spares.append(fork)

    def _again(self, spare: Placer) -> Placer:
        """Turn a recycled fork into a copy of the current state."""
        own = {name: getattr(spare, name) for name in _OF_FORK}
        spare.__dict__.update(self.__dict__)
        spare.__dict__.update(own)
        copy_state(self._places, spare._places)
        spare._own()
        return spare

    def _own(self) -> None:
        """Copy the lists that are still shared with the placer that this was forked from."""
        self._agents = list(self._agents)
        self._device_index = list(self._device_index)
        self._asks, self._ask_of = list(self._asks), dict(self._ask_of)
        self._row_of, self._refusals = dict(self._row_of), dict(self._refusals)
        self._ever, self._never = dict(self._ever), set(self._never)

    def fork_for_thread(self) -> Placer:
        """Return a fork for another thread; this placer may change meanwhile."""
        other = self.fork()
        other._names = self._names.copy()
        other._ideal = None
        return other

    def fragmentation(self) -> float:
        """Return the fraction of all device capacity that is free but unusable for a typical
        request.
        """
        return fragmented(self._columns, self._costs)

    def agents(self) -> list[AgentState]:
        """Return the agents in their current state, in their order."""
        return [read_agent(self._columns, n, agent) for n, agent in enumerate(self._agents)]
