"""Encode agents and requests as rows of integer columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...cluster.devices import SHARES, Device, pool_of
from ...errors import InvalidRequest
from ...resources import CPU as CPU_SLOT
from ...resources import MEM as MEM_SLOT
from ...resources import family_of
from ..placement_options import Mode, Strategy
from .compiled import columns as c
from .compiled.columns import Columns, Ints, ScoreCache
from .model import AgentState, Request
from .pricing.mix import RequestKind

_CUDA = "cuda"


class NameTable:
    """Assign consecutive numbers to names, in the order of their first use."""

    def __init__(self, families: Sequence[str] = (), models: Sequence[str] = ()) -> None:
        self.families = {name: i for i, name in enumerate(families)}
        self.models = {name: i for i, name in enumerate(models)}
        self._labels: dict[str, int] = {}
        self._hosts: dict[str, int] = {}
        self._kinds: dict[tuple[bytes, bytes], int] = {}

    def copy(self) -> NameTable:
        """Return an independent copy; names added later are numbered separately."""
        other = NameTable(list(self.families), list(self.models))
        other._labels, other._kinds = dict(self._labels), dict(self._kinds)
        other._hosts = dict(self._hosts)
        return other

    def family(self, name: str) -> int:
        return self.families.setdefault(name, len(self.families))

    def model(self, name: str) -> int:
        return self.models.setdefault(name, len(self.models))

    def label(self, name: str) -> int:
        """Return the number of an architecture or an engine."""
        return self._labels.setdefault(name, len(self._labels))

    def kind(self, row: Ints, facts: Ints) -> int:
        """Return the number of an agent's kind, which is equal for equal static facts."""
        return self._kinds.setdefault((row.tobytes(), facts.tobytes()), len(self._kinds))

    def hosts(self, names: Sequence[str]) -> int:
        """Return a bit mask of storage hosts.

        All hosts after the first 62 have the same bit, so if one of them does not work on an agent,
        none of them is used there.
        """
        mask = 0
        for name in names:
            mask |= 1 << min(self._hosts.setdefault(name, len(self._hosts)), 62)
        return mask

    def mask(self, models: Sequence[str]) -> int:
        """Return a bit mask of models; ANY if ``models`` is empty.

        Only the first 62 models have a bit, so a request with named models never matches other
        models.
        """
        if not models:
            return c.ANY
        return sum({1 << i for i in map(self.model, models) if i < 62})


def driver_number(version: str) -> int:
    """Return a driver version as a comparable number; ANY if the version is unknown."""
    parts = [min(int(part), 999) for part in re.findall(r"\d+", version)[:3]]
    if not parts:
        return c.ANY
    major, minor, patch = (*parts, 0, 0)[:3]
    return (major * 1000 + minor) * 1000 + patch


def build_columns(agents: Sequence[AgentState], names: NameTable, width: int = 0) -> Columns:
    """Return the columns of agents, in their order, with at least ``width`` devices each."""
    width = max([width, 1, *(len(a.devices) for a in agents)])
    columns = Columns(
        np.zeros((len(agents), c.AGENT_WIDTH), np.int64),
        np.zeros((len(agents), width), np.int64),
        np.zeros((len(agents), width, c.DEVICE_WIDTH), np.int64),
        np.zeros((len(agents), c.SUMS_WIDTH)),
        np.zeros((len(agents), c.TALLIES_WIDTH), np.int64),
    )
    for n, agent in enumerate(agents):
        write_agent(columns, n, agent, names)
    return columns


def write_agent(columns: Columns, n: int, agent: AgentState, names: NameTable) -> None:
    """Set row ``n`` of the columns to the state of an agent."""
    links = link_groups(agent.devices)
    numas = [-1 if d.numa_node is None else d.numa_node for d in agent.devices]
    row = columns.agents[n]
    row[c.CPU] = agent.capacity.get(CPU_SLOT, 0) - agent.used.get(CPU_SLOT, 0)
    row[c.MEM] = agent.capacity.get(MEM_SLOT, 0) - agent.used.get(MEM_SLOT, 0)
    row[c.OPEN] = agent.is_alive and agent.is_schedulable and not agent.is_network_full
    row[c.ARCHITECTURE] = names.label(agent.architecture)
    row[c.ENGINE] = names.label(agent.engine)
    row[c.DRIVER] = driver_number(agent.cuda_driver)
    row[c.STORAGE] = names.hosts(agent.unusable_hosts)
    row[c.HAS_GRAPH] = any(link >= 0 for link in links) or len(set(numas)) > 1
    columns.free[n] = 0
    columns.facts[n] = c.ANY
    for j, device in enumerate(agent.devices):
        free = device.capacity - device.used
        columns.free[n, j] = free if device.is_healthy else free - c.UNHEALTHY_PENALTY
        facts = columns.facts[n, j]
        facts[c.CAPACITY] = device.capacity
        facts[c.FAMILY] = names.family(device.pool)
        facts[c.MODEL] = names.model(device.model)
        facts[c.NUMA] = numas[j]
        facts[c.LINK] = links[j]
        facts[c.MIN_SHARE] = device.sharing.least
        facts[c.MAX_SHARE] = device.sharing.max_share_now
        facts[c.IN_FORCE] = 0 if device.sharing.is_uniform else c.ANY
    # KIND identifies the static facts, so compute it before writing the share in force, which
    # changes.
    row[c.KIND] = names.kind(row[c.ARCHITECTURE : c.HAS_GRAPH + 1], columns.facts[n])
    for j, device in enumerate(agent.devices):
        if device.sharing.is_uniform:
            columns.facts[n, j, c.IN_FORCE] = device.share_in_force


def link_groups(devices: Sequence[Device]) -> list[int]:
    """Return the number of each device's link group: equal for linked devices, -1 if unknown."""
    index = {device.id: j for j, device in enumerate(devices)}
    group = [-1 if d.links is None else j for j, d in enumerate(devices)]
    for j, device in enumerate(devices):
        for peer in device.links or ():
            other = group[index[peer]] if peer in index else -1
            if other >= 0 and other != group[j]:
                low, high = sorted((other, group[j]))
                group = [low if g == high else g for g in group]
    return group


def read_agent(columns: Columns, n: int, agent: AgentState) -> AgentState:
    """Return ``agent`` with the usage stored in row ``n``: the inverse of ``write_agent``."""
    row, free = columns.agents[n], columns.free[n].tolist()
    used = {
        **agent.used,
        CPU_SLOT: agent.capacity.get(CPU_SLOT, 0) - int(row[c.CPU]),
        MEM_SLOT: agent.capacity.get(MEM_SLOT, 0) - int(row[c.MEM]),
    }
    in_force = columns.facts[n, :, c.IN_FORCE].tolist()
    devices = tuple(
        replace(
            d,
            used=d.capacity - free_here - (0 if d.is_healthy else c.UNHEALTHY_PENALTY),
            share_in_force=max(0, share),
        )
        # Rows are padded to the largest number of devices of any agent, so a row may be longer than
        # the list.
        for d, free_here, share in zip(agent.devices, free, in_force, strict=False)
    )
    return replace(agent, used=used, devices=devices)


def encode_request(request: Request, names: NameTable) -> Ints:
    """Encode a request as a shape row: the resources of the kernels that must run on one agent.

    Raises
    ------
    InvalidRequest
        If the request has more than ``MAX_NEEDS`` device slots.
    """
    needs = [(slot, n) for slot, n in request.slots.items() if family_of(slot)]
    if len(needs) > c.MAX_NEEDS:
        raise InvalidRequest(
            f"{len(needs)} device slots requested; a session may have at most {c.MAX_NEEDS}",
            slots=[slot for slot, _ in needs],
        )
    row = _empty_row(request.slots.get(CPU_SLOT, 0), request.slots.get(MEM_SLOT, 0))
    if request.mode == Mode.SINGLE_NODE:
        row[c.KERNELS] = request.kernels
    row[c.ARCHITECTURE] = names.label(request.architecture)
    row[c.ENGINE] = c.ANY if request.engine is None else names.label(request.engine)
    if any(family_of(slot) == _CUDA for slot, _ in needs):
        row[c.DRIVER] = driver_number(request.min_cuda_driver)
    row[c.STORAGE] = names.hosts(request.storage_hosts)
    row[c.MAY_FRAGMENT] = request.allow_fragmentation
    row[c.IS_FILL] = request.strategy == Strategy.FILL
    models = names.mask(request.device_models)
    for slot, amount in needs:
        family = names.family(pool_of(slot))
        is_share = slot.endswith(f".{SHARES}")
        _add_need(row, family, not is_share, amount, models)
    return row


def encode_request_kind(kind: RequestKind, names: NameTable) -> Ints:
    """Encode a kind of request as a shape row."""
    row = _empty_row(kind.cpu, kind.mem)
    if kind.devices:
        is_whole = kind.share == c.UNIT
        amount = kind.devices if is_whole else kind.share
        _add_need(row, names.family(kind.family), is_whole, amount, names.mask(kind.models))
    return row


def _empty_row(cpu: int, mem: int) -> Ints:
    row = np.zeros(c.SHAPE_WIDTH, np.int64)
    row[c.CPU], row[c.MEM], row[c.KERNELS], row[c.ENGINE] = cpu, mem, 1, c.ANY
    return row


def _add_need(row: Ints, family: int, is_whole: bool, amount: int, models: int) -> None:
    at = c.NEED_START + c.NEED_WIDTH * int(row[c.NEED_COUNT])
    row[at + c.NEED_FAMILY] = family
    row[at + c.NEED_WHOLE] = is_whole
    row[at + c.NEED_AMOUNT] = amount
    row[at + c.NEED_MODELS] = models
    row[c.NEED_COUNT] += 1


def new_score_cache(
    *, agents: int, devices: int, shapes: int, picks: int, policy: int, seed: int = 0
) -> ScoreCache:
    """Return an empty score cache for the policy with the number ``policy``.

    ``agents``, ``devices`` (per agent), ``shapes`` and ``picks`` (per search) are sizes. The cache
    always has room for at least ``devices`` picks. ``seed`` initializes the random generator of the
    search.
    """
    blocks = max(1, -(-agents // c.BLOCK_SIZE))
    state = np.zeros(c.STATE_WIDTH, np.int64)
    state[c.LAST_AGENT] = -1
    state[c.DERIVED_HEAD] = -1
    state[c.POLICY] = policy
    # The state of a xorshift generator must not be 0, and must differ strongly for similar seeds.
    state[c.RANDOM_STATE] = (seed + 1) * 0x9E3779B97F4A7C15 % 2**62 | 1
    return ScoreCache(
        scores=np.full((shapes, agents), c.UNFIT, np.int64),
        block_best=np.full((shapes, blocks), c.UNFIT, np.int64),
        read_at=np.full(shapes, -1, np.int64),
        log=np.zeros(2 ** (4 * agents).bit_length(), np.int64),
        visited=np.zeros(agents, np.int64),
        state=state,
        picks=np.zeros((max(picks, devices), 4), np.int64),
        free_scratch=np.zeros(devices, np.int64),
        stale=np.zeros(agents, np.int64),
        agent_lists=np.zeros((2, agents), np.int64),
        state_cache=np.zeros((2, c.STATE_CACHE_SIZE), np.int64),
    )


def with_double_capacity(cache: ScoreCache) -> ScoreCache:
    """Return a score cache for twice as many shapes."""
    return cache._replace(
        scores=np.concatenate([cache.scores, np.full_like(cache.scores, c.UNFIT)]),
        block_best=np.concatenate([cache.block_best, np.full_like(cache.block_best, c.UNFIT)]),
        read_at=np.concatenate([cache.read_at, np.full_like(cache.read_at, -1)]),
    )
