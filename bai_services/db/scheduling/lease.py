"""Lease with a fencing token: only one manager at a time may write to the queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ..database import Database
from ..integrity import insert_ignoring
from ..tables.scheduling import leases

QUEUE = "queue"


class StaleLease(Exception):
    """Another manager has acquired the lease; the transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """State of a lease.

    An acquisition increments ``token``. A renewal or release increments ``beat``. ``holder`` is
    empty after a release.
    """

    holder: str
    token: int
    beat: int
    taken_at: datetime


class LeaseStore:
    """Acquires, renews and releases a lease. Each public method is one transaction."""

    def __init__(self, database: Database, name: str = QUEUE) -> None:
        self._db = database
        self._name = name

    async def read(self) -> LeaseRow | None:
        """Return the state of the lease; None if it was never acquired."""
        async with self._db.read() as tx:
            return await self._read(tx)

    async def acquire(self, holder: str, seen: LeaseRow | None, at: datetime) -> int | None:
        """Acquire the lease if its state is still ``seen``; return the new token.

        Return None if the state has changed. The caller must ensure that the previous holder has
        released the lease, has ended, or has not renewed the lease for its lifetime.
        """
        async with self._db.write() as tx:
            if seen is None:
                first: int | None = await tx.scalar(
                    insert_ignoring(tx, leases)
                    .values(name=self._name, holder=holder, token=1, beat=0, taken_at=at)
                    .returning(leases.c.token)
                )
                return first
            acquired = await tx.execute(
                sa.update(leases)
                .where(
                    leases.c.name == self._name,
                    leases.c.token == seen.token,
                    leases.c.beat == seen.beat,
                    leases.c.holder == seen.holder,
                )
                .values(holder=holder, token=seen.token + 1, beat=0, taken_at=at)
            )
            return seen.token + 1 if acquired.rowcount == 1 else None

    async def renew(self, token: int) -> bool:
        """Renew the lease; return False if ``token`` is stale."""
        async with self._db.write() as tx:
            renewed = await tx.execute(
                sa.update(leases)
                .where(leases.c.name == self._name, leases.c.token == token)
                .values(beat=leases.c.beat + 1)
            )
            return renewed.rowcount == 1

    async def release(self, token: int) -> None:
        """Release the lease; no effect if ``token`` is stale."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(leases)
                .where(leases.c.name == self._name, leases.c.token == token)
                .values(holder="", beat=leases.c.beat + 1)
            )

    async def _read(self, tx: AsyncConnection) -> LeaseRow | None:
        rows = await tx.execute(
            sa.select(leases.c.holder, leases.c.token, leases.c.beat, leases.c.taken_at).where(
                leases.c.name == self._name
            )
        )
        row = rows.one_or_none()
        return None if row is None else LeaseRow(*row)


async def require(tx: AsyncConnection, token: int, name: str = QUEUE) -> None:
    """Require that ``token`` is current, and lock the lease until the end of the transaction.

    Raises
    ------
    StaleLease
        If there is a newer token.
    """
    newest = await tx.scalar(
        sa.select(leases.c.token).where(leases.c.name == name).with_for_update(read=True)
    )
    if newest != token:
        raise StaleLease(f"the lease {name!r} has token {newest}; {token} is stale")
