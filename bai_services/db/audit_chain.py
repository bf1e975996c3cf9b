"""Store of the hash chain over the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import LoggedEntry
from bai_services.core.audit_chain import ChainState, Link

from .audit import ENTRY_COLUMNS
from .bulk import RowUpdate
from .database import Database
from .integrity import insert_ignoring
from .records import records
from .tables.accounts import audit_chain, audit_log

_NAME = "audit"
_LINK = RowUpdate(
    {"id": sa.Integer(), "position": sa.BigInteger(), "hash": sa.String()},
    lambda values: (
        sa.update(audit_log)
        .where(audit_log.c.id == values["id"], audit_log.c.position.is_(None))
        .values(position=values["position"], hash=values["hash"])
    ),
)
_STATE = sa.select(
    audit_chain.c.anchor_position,
    audit_chain.c.anchor_hash,
    audit_chain.c.head_position,
    audit_chain.c.head_hash,
).where(audit_chain.c.name == _NAME)
_ENTRIES = sa.select(*ENTRY_COLUMNS)


class ChainChanged(Exception):
    """Another manager has changed the chain; the transaction is rolled back."""


class AuditChainStore:
    """Appends entries to the chain, and removes old entries from its beginning.

    A change moves an end of the chain. It is committed only if no other change has moved this end
    (compare-and-set).
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def state(self) -> ChainState:
        async with self._db.read() as tx:
            return await _state(tx)

    async def unchained(self, limit: int) -> tuple[ChainState, list[LoggedEntry]]:
        """Return the state of the chain, and the oldest entries that are not in it."""
        chosen = _ENTRIES.where(audit_log.c.position.is_(None)).order_by(audit_log.c.id)
        async with self._db.read() as tx:
            return await _state(tx), records(LoggedEntry, await tx.execute(chosen.limit(limit)))

    async def append(self, seen: ChainState, links: Sequence[Link]) -> None:
        """Append entries to the chain; the head must be unchanged since ``seen`` was read.

        Raises
        ------
        ChainChanged
            If the head has changed or an entry is already chained.
        """
        async with self._db.write() as tx:
            if seen == ChainState():
                row = {"name": _NAME, "anchor_position": 0, "anchor_hash": seen.anchor_hash}
                first = {"head_position": 0, "head_hash": seen.head_hash}
                await tx.execute(insert_ignoring(tx, audit_chain).values(**row, **first))
            moved = await tx.execute(
                sa.update(audit_chain)
                .where(audit_chain.c.name == _NAME, audit_chain.c.head_hash == seen.head_hash)
                .where(audit_chain.c.head_position == seen.head_position)
                .values(head_position=links[-1].position, head_hash=links[-1].hash)
            )
            if moved.rowcount != 1:
                raise ChainChanged
            rows = [(each.entry_id, each.position, each.hash) for each in links]
            if await _LINK.run(tx, rows) != len(rows):
                raise ChainChanged

    async def expire(self, before: datetime, limit: int) -> int:
        """Remove the entries at the beginning of the chain that are older than ``before``.

        At most ``limit`` entries are removed; return their number. The head always remains.
        """
        async with self._db.write() as tx:
            state = await _state(tx)
            oldest = (
                sa.select(audit_log.c.position, audit_log.c.hash, audit_log.c.at)
                .where(audit_log.c.position > state.anchor_position)
                .where(audit_log.c.position < state.head_position)
                .order_by(audit_log.c.position)
                .limit(limit)
            )
            last: tuple[int, str] | None = None
            count = 0
            for position, its_hash, at in await tx.execute(oldest):
                # A gap indicates a removed entry. Keep the entries after the gap, so that a
                # verification finds it.
                if at >= before or position != state.anchor_position + count + 1:
                    break
                last, count = (position, its_hash), count + 1
            if last is None:
                return 0
            moved = await tx.execute(
                sa.update(audit_chain)
                .where(audit_chain.c.name == _NAME)
                .where(audit_chain.c.anchor_position == state.anchor_position)
                .values(anchor_position=last[0], anchor_hash=last[1])
            )
            if moved.rowcount != 1:
                return 0  # another manager is removing entries
            await tx.execute(
                sa.delete(audit_log).where(
                    audit_log.c.position > state.anchor_position, audit_log.c.position <= last[0]
                )
            )
            return count

    async def after(self, position: int, limit: int) -> tuple[ChainState, list[LoggedEntry]]:
        """Return the state of the chain and its entries after ``position``, in one snapshot."""
        chosen = (
            _ENTRIES.where(audit_log.c.position > position)
            .order_by(audit_log.c.position)
            .limit(limit)
        )
        async with self._db.read_one_state() as tx:
            return await _state(tx), records(LoggedEntry, await tx.execute(chosen))

    async def at(self, position: int) -> LoggedEntry | None:
        """Return the entry at a position of the chain."""
        async with self._db.read() as tx:
            found = await tx.execute(_ENTRIES.where(audit_log.c.position == position))
            return next(iter(records(LoggedEntry, found)), None)

    async def outside(self) -> tuple[ChainState, LoggedEntry | None, int]:
        """Return the state, the first entry outside of the chain's ends, and the number of
        unchained entries.
        """
        async with self._db.read_one_state() as tx:
            state = await _state(tx)
            strays = _ENTRIES.where(
                sa.or_(
                    audit_log.c.position <= state.anchor_position,
                    audit_log.c.position > state.head_position,
                )
            ).order_by(audit_log.c.position)
            found = records(LoggedEntry, await tx.execute(strays.limit(1)))
            waiting = await tx.scalar(
                sa.select(sa.func.count())
                .select_from(audit_log)
                .where(audit_log.c.position.is_(None))
            )
            return state, found[0] if found else None, int(waiting or 0)


async def _state(tx: AsyncConnection) -> ChainState:
    row = (await tx.execute(_STATE)).one_or_none()
    return ChainState() if row is None else ChainState(*row)
