"""Allocate and release resources: rows of the ledger and the usage counters derived from them.

These functions run inside a transaction of a store. To avoid deadlocks between concurrent writers,
counters are always updated in the same order: first scopes, then agent slots, then devices, and
within each table in the order of the keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.devices import SHARES, thousandths
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.scheduling.caps import SESSIONS, Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.placement import Placement
from bai_services.core.sessions.resizing import HeldAmount

from .. import bulk
from ..cluster.shares_in_force import read_mixed_shares
from ..tables.cluster import agent_slots, agents, devices
from ..tables.sessions import allocations, scope_usage
from ..usage import record_writes
from .caps import CHUNK


class LostRace(Exception):
    """A concurrent write has made a decision obsolete; the transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class SessionPlacement:
    """A session to which resources are allocated.

    ``placements`` has one placement for each of ``kernel_ids``, the main kernel first.
    """

    session_id: str
    kernel_ids: Sequence[str]
    scopes: Sequence[Scope]
    placements: Sequence[Placement]


@dataclass(frozen=True, slots=True)
class ResizedKernel:
    """The only kernel of a session, with its amounts after a resize."""

    session_id: str
    kernel_id: str
    agent_id: str
    scopes: Sequence[Scope]
    amounts: Sequence[HeldAmount]


def scopes_of(
    domain: str, project_id: str, owner_id: str, access_key: str, resource_group: str
) -> tuple[Scope, ...]:
    """Return the scopes that a session is charged to, in locking order."""
    return (
        Scope(ScopeKind.DOMAIN, domain),
        Scope(ScopeKind.KEYPAIR, access_key),
        Scope(ScopeKind.PROJECT, project_id),
        Scope(ScopeKind.RESOURCE_GROUP, resource_group),
        Scope(ScopeKind.USER, owner_id),
    )


async def allocate(
    tx: AsyncConnection,
    holders: Sequence[SessionPlacement],
    caps: Mapping[Scope, ScopeCaps],
    at: datetime,
) -> None:
    """Insert the ledger rows of sessions, and increase the counters.

    Raises
    ------
    LostRace
        If the sessions together exceed a cap or the capacity of an agent or device, if an agent no
        longer accepts sessions, if a device is not healthy, or if sessions with different shares
        would run on a device that requires equal shares.
    """
    rows: list[record_writes.Allocated] = []
    changes = _CounterChanges()
    for holder in holders:
        changes.count_session(holder.scopes, 1)
        for kernel_id, placement in zip(holder.kernel_ids, holder.placements, strict=True):
            for device_id, slot, amount in _amounts(placement):
                changes.count(holder.scopes, placement.agent_id, device_id, (slot, amount))
                rows.append(
                    (holder.session_id, kernel_id, placement.agent_id, device_id, slot, amount)
                )
    await _require_schedulable(tx, sorted(changes.agents))
    await _increase_scopes(tx, changes, caps)
    await _AGENT_SLOTS.increase(tx, changes.agent_rows())
    await _DEVICES.increase(tx, changes.device_rows())
    await _LEDGER.run(tx, rows, allocated_at=at)
    await record_writes.open_records(tx, rows, at)
    shared = {device for _, _, _, device, slot, _ in rows if device and slot.endswith(f".{SHARES}")}
    if mixed := await read_mixed_shares(tx, changes.agents, shared):
        raise LostRace(f"device {mixed[0]} is now used with another share")


async def release(
    tx: AsyncConnection, scopes: Mapping[str, Sequence[Scope]], at: datetime
) -> frozenset[str]:
    """Release all resources of sessions, given with the scopes to which they are charged.

    Return the sessions that had resources. Idempotent: each row of the ledger is released only
    once, even by concurrent calls.
    """
    if not scopes:
        return frozenset()
    freed = (await tx.execute(_FREE, {"ids": sorted(scopes), "at": at})).all()
    if not freed:
        return frozenset()
    released = frozenset(row.session_id for row in freed)
    await record_writes.close_records(tx, sorted(released), at)
    changes = _CounterChanges()
    for session_id in released:
        changes.count_session(scopes[session_id], 1)
    for session_id, agent_id, device_id, slot, amount in freed:
        changes.count(scopes[session_id], agent_id, device_id, (slot, amount))
    await _SCOPES.decrease(tx, changes.scope_rows())
    await _AGENT_SLOTS.decrease(tx, changes.agent_rows())
    await _DEVICES.decrease(tx, changes.device_rows())
    return released


async def resize(
    tx: AsyncConnection,
    holder: ResizedKernel,
    caps: Mapping[Scope, ScopeCaps],
    at: datetime,
) -> None:
    """Replace the ledger rows of a single-kernel session with rows with other amounts.

    Rows with unchanged amounts are also replaced, so that all usage records of the session are
    split at the same time.

    Raises
    ------
    LostRace
        If the difference exceeds a cap, or the capacity of the agent or a device.
    """
    freed = (await tx.execute(_FREE, {"ids": [holder.session_id], "at": at})).all()
    await record_writes.close_records(tx, [holder.session_id], at)
    more, less = _CounterChanges(), _CounterChanges()
    before = {(row.device_id, row.slot): row.amount for row in freed}
    for device_id, slot, amount in holder.amounts:
        difference = amount - before.get((device_id, slot), 0)
        changes = more if difference > 0 else less
        if difference:
            changes.count(holder.scopes, holder.agent_id, device_id, (slot, abs(difference)))
    await _increase_scopes(tx, more, caps)
    await _SCOPES.decrease(tx, less.scope_rows())
    await _AGENT_SLOTS.increase(tx, more.agent_rows())
    await _AGENT_SLOTS.decrease(tx, less.agent_rows())
    await _DEVICES.increase(tx, more.device_rows())
    await _DEVICES.decrease(tx, less.device_rows())
    rows = [
        (holder.session_id, holder.kernel_id, holder.agent_id, *amount) for amount in holder.amounts
    ]
    await _LEDGER.run(tx, rows, allocated_at=at)
    await record_writes.open_records(tx, rows, at)


class _CounterChanges:
    """The change of each counter; the rows of each table are returned in locking order."""

    def __init__(self) -> None:
        self.agents: set[str] = set()
        self._scopes: Counter[tuple[str, str, str]] = Counter()
        self._agent_slots: Counter[tuple[str, str]] = Counter()
        self._devices: Counter[tuple[str, str]] = Counter()

    def count_session(self, scopes: Sequence[Scope], count: int) -> None:
        for scope in scopes:
            self._scopes[scope.kind, scope.id, SESSIONS] += count

    def count(
        self,
        scopes: Sequence[Scope],
        agent_id: str,
        device_id: str | None,
        slot_amount: tuple[str, int],
    ) -> None:
        """Add an amount of a slot to the counters of the scopes and of the agent or its device."""
        slot, amount = slot_amount
        self.agents.add(agent_id)
        for scope in scopes:
            self._scopes[scope.kind, scope.id, slot] += amount
        if device_id is None:
            self._agent_slots[agent_id, slot] += amount
        else:
            self._devices[device_id, agent_id] += thousandths(slot, amount)

    def scope_rows(self) -> list[bulk.Row]:
        return sorted((*key, amount) for key, amount in self._scopes.items())

    def agent_rows(self) -> list[bulk.Row]:
        return sorted((*key, amount) for key, amount in self._agent_slots.items())

    def device_rows(self) -> list[bulk.Row]:
        return sorted((*key, amount) for key, amount in self._devices.items())


def _amounts(placement: Placement) -> list[tuple[str | None, str, int]]:
    """Return (device id or None, slot, amount) for each amount in a placement."""
    plain: list[tuple[str | None, str, int]] = [(None, *item) for item in placement.slots.items()]
    return plain + [(d.device_id, d.slot, d.amount) for d in placement.devices]


_SCHEDULABLE = sa.select(agents.c.id).where(
    agents.c.status == AgentStatus.ALIVE,
    agents.c.schedulable,
    bulk.Among(agents.c.id, "ids"),
)


async def _require_schedulable(tx: AsyncConnection, agent_ids: Sequence[str]) -> None:
    schedulable: set[str] = set()
    for start in range(0, len(agent_ids), CHUNK):
        part = agent_ids[start : start + CHUNK]
        schedulable |= set((await tx.execute(_SCHEDULABLE, {"ids": part})).scalars())
    if closed := [agent_id for agent_id in agent_ids if agent_id not in schedulable]:
        raise LostRace(f"agent {closed[0]} no longer accepts sessions")


async def _increase_scopes(
    tx: AsyncConnection, changes: _CounterChanges, caps: Mapping[Scope, ScopeCaps]
) -> None:
    rows = changes.scope_rows()
    await _MISSING.run(tx, [row[:3] for row in rows], used=0)
    limits = {}
    for kind, key, slot, _ in rows:
        scope_caps = caps.get(Scope(kind, key))
        limits[kind, key, slot] = None if scope_caps is None else scope_caps.limit(slot)
    await _SCOPES.increase(tx, [(*row, limits[row[:3]]) for row in rows])


_FREE = (
    sa.update(allocations)
    .where(bulk.Among(allocations.c.session_id, "ids"), allocations.c.freed_at.is_(None))
    .values(freed_at=sa.bindparam("at"))
    .returning(
        allocations.c.session_id,
        allocations.c.agent_id,
        allocations.c.device_id,
        allocations.c.slot,
        allocations.c.amount,
    )
)


class _Counters:
    """The usage counters in one table, locked and updated in the order of their keys.

    ``is_within_limit`` returns the condition for increasing a counter. It receives the keys,
    ``amount`` and the values in ``more`` as columns.
    """

    def __init__(
        self,
        table: sa.Table,
        keys: Mapping[str, Any],
        is_within_limit: Callable[[bulk.Values], sa.ColumnElement[bool]],
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self._name, self._width = table.name, len(keys)
        kinds = {**keys, "amount": sa.BigInteger()}

        def one(v: bulk.Values) -> sa.Update:
            return sa.update(table).where(*(table.c[name] == v[name] for name in keys))

        self._lock = bulk.RowLock(table, keys)
        self._increase = bulk.RowUpdate(
            {**kinds, **(more or {})},
            lambda v: one(v).where(is_within_limit(v)).values(used=table.c.used + v["amount"]),
        )
        self._decrease = bulk.RowUpdate(
            kinds, lambda v: one(v).values(used=table.c.used - v["amount"])
        )

    async def increase(self, tx: AsyncConnection, rows: Sequence[bulk.Row]) -> None:
        """Increase all counters; raise ``LostRace`` if ``is_within_limit`` is false for one."""
        await self._lock.run(tx, [row[: self._width] for row in rows])
        moved = await self._increase.run(tx, rows)
        if moved != len(rows):
            raise LostRace(
                f"{len(rows) - moved} of {len(rows)} counters in {self._name} cannot be increased"
            )

    async def decrease(self, tx: AsyncConnection, rows: Sequence[bulk.Row]) -> None:
        await self._lock.run(tx, [row[: self._width] for row in rows])
        await self._decrease.run(tx, rows)


# Built once: building these statements takes longer than running them.
_LEDGER = bulk.RowInsert(
    allocations,
    ["session_id", "kernel_id", "agent_id", "device_id", "slot", "amount"],
    ["allocated_at"],
)
_MISSING = bulk.RowInsert(scope_usage, ["scope", "scope_id", "slot"], ["used"], ignores=True)
_SCOPES = _Counters(
    scope_usage,
    {"scope": sa.String(), "scope_id": sa.String(), "slot": sa.String()},
    lambda v: sa.or_(v["limit"].is_(None), scope_usage.c.used + v["amount"] <= v["limit"]),
    {"limit": sa.BigInteger()},
)
_AGENT_SLOTS = _Counters(
    agent_slots,
    {"agent_id": sa.String(), "slot": sa.String()},
    lambda v: agent_slots.c.used + v["amount"] <= agent_slots.c.capacity,
)
_DEVICES = _Counters(
    devices,
    {"id": sa.String(), "agent_id": sa.String()},
    lambda v: sa.and_(devices.c.is_healthy, devices.c.used + v["amount"] <= devices.c.capacity),
)
