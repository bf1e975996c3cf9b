"""Store of sign-in attempts, and of the addresses from which users have signed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry

from ..audit import record
from ..database import Database
from ..integrity import insert_ignoring
from ..tables.accounts import known_sign_in_addresses, sign_in_failures, users
from .checked_users import CheckedUser, lock_unchanged

KNOWN_ADDRESS_LIFETIME = timedelta(days=90)

_subject = sign_in_failures.c.subject


@dataclass(frozen=True, slots=True)
class AttemptCount:
    """Number of attempts of a subject.

    ``blocked_until``: end of a block that began before this attempt; None: no such block.
    """

    count: int
    blocked_until: datetime | None


class SignInAttemptStore:
    """Counts sign-in attempts per subject.

    A subject is the keyed hash of a typed name, an account, an address, or a name together with an
    address.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def count_attempt(
        self, allowed: Mapping[str, int | None], now: datetime, block_time: timedelta
    ) -> dict[str, AttemptCount]:
        """Count one attempt for each subject, before the password is checked; return the counts.

        ``allowed`` maps each subject to its maximum number of attempts (None: no limit). The
        attempt that reaches the maximum blocks the subject for ``block_time``. Attempts during a
        block are not counted. The count is reset ``block_time`` after the last attempt. Counting
        before the password check prevents concurrent attempts from exceeding the limit.
        """
        await self._delete_expired(now, block_time)
        async with self._db.write() as tx:
            # Sorted, to avoid deadlocks between concurrent attempts.
            return {
                subject: await _count(tx, subject, allowed[subject], now, block_time)
                for subject in sorted(allowed)
            }

    async def is_known(self, user_id: str, address: str) -> bool:
        """Return whether the user has signed in from the address with the hash ``address``."""
        known = known_sign_in_addresses.c
        async with self._db.read() as tx:
            last_at = await tx.scalar(
                sa.select(known.last_at).where(known.user_id == user_id, known.address == address)
            )
        return last_at is not None

    async def is_used(self, address: str) -> bool:
        """Return whether any user has signed in from the address with the hash ``address``."""
        known = known_sign_in_addresses.c
        async with self._db.read() as tx:
            query = sa.select(known.address).where(known.address == address).limit(1)
            return await tx.scalar(query) is not None

    async def reset_after_sign_in(
        self,
        user_id: str,
        subjects: Sequence[str],
        address: str,
        known: tuple[str, datetime] | None,
        password_changed_at: datetime | None,
        audit: AuditEntry,
    ) -> bool:
        """Reset the attempts of subjects after a sign-in with the correct password.

        ``password_changed_at`` is the stored value before the password check. If the value has
        changed since then, change nothing and return False.

        The count of ``address`` (the hash of the client's address) is reduced by one, for this
        attempt; during a block of the address, it remains unchanged. ``known`` is a known address
        of the user to store, as (hash of the address, time), or None.
        """
        async with self._db.write() as tx:
            # Lock the user, so that the password cannot change before the commit.
            is_same = sa.and_(
                users.c.id == user_id,
                users.c.password_changed_at.is_not_distinct_from(password_changed_at),
            )
            locked = sa.select(users.c.id).where(is_same).with_for_update(read=True)
            if await tx.scalar(locked) is None:
                return False
            reduced = (
                sign_in_failures.update()
                .where(_subject == address, sign_in_failures.c.blocked_until.is_(None))
                .values(count=sign_in_failures.c.count - 1)
            )
            await _in_lock_order(
                tx, {address: reduced, **{subject: _deletion(subject) for subject in subjects}}
            )
            if known is not None:
                await _store_known(tx, user_id, *known)
            await record(tx, audit)
            return True

    async def withdraw(self, allowed: Mapping[str, int | None]) -> None:
        """Undo the count of one attempt for each subject.

        If the count is then below the maximum in ``allowed``, this attempt has caused the block, so
        the block ends.
        """
        columns = sign_in_failures.c
        async with self._db.write() as tx:
            for subject in sorted(allowed):
                count, maximum = columns.count - 1, allowed[subject]
                is_below = sa.literal(True) if maximum is None else count < maximum
                await tx.execute(
                    sign_in_failures.update()
                    .where(_subject == subject, columns.count > 0)
                    .values(
                        count=count,
                        blocked_until=sa.case((is_below, None), else_=columns.blocked_until),
                    )
                )

    async def forget(self, subjects: Sequence[str]) -> None:
        """Delete the counts of subjects."""
        async with self._db.write() as tx:
            await _in_lock_order(tx, {subject: _deletion(subject) for subject in subjects})

    async def blocked(self, subjects: Sequence[str], now: datetime) -> dict[str, datetime]:
        """Return the end of the block of each blocked subject."""
        columns = sign_in_failures.c
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(columns.subject, columns.blocked_until).where(
                    _subject.in_(subjects), columns.blocked_until > now
                )
            )
            return {row.subject: row.blocked_until for row in rows}

    async def reset(self, user: CheckedUser, subjects: Sequence[str], audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await lock_unchanged(tx, user)
            await _in_lock_order(tx, {subject: _deletion(subject) for subject in subjects})
            await record(tx, audit)

    async def _delete_expired(self, now: datetime, block_time: timedelta) -> None:
        """Delete the counts of unblocked subjects without an attempt for ``block_time``.

        Counts that another transaction has locked are skipped: an attempt is changing them, and
        waiting could cause a deadlock.
        """
        columns = sign_in_failures.c
        expired = (
            sa.select(_subject)
            .where(
                columns.last_at <= now - block_time,
                sa.or_(columns.blocked_until.is_(None), columns.blocked_until <= now),
            )
            .with_for_update(skip_locked=True)
        )
        async with self._db.write() as tx:
            await tx.execute(sign_in_failures.delete().where(_subject.in_(expired)))


def _deletion(subject: str) -> sa.Delete:
    return sign_in_failures.delete().where(_subject == subject)


async def _in_lock_order(tx: AsyncConnection, changes: Mapping[str, sa.Delete | sa.Update]) -> None:
    """Execute one change per subject in the order of ``count_attempt``, to avoid deadlocks.

    Locking all counts before the changes is not sufficient: another transaction can insert a count
    between the lock and the change.
    """
    for subject in sorted(changes):
        await tx.execute(changes[subject])


async def _count(
    tx: AsyncConnection, subject: str, allowed: int | None, now: datetime, block_time: timedelta
) -> AttemptCount:
    # One statement inserts or locks the row: a concurrent sign-in may delete it.
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(sign_in_failures)
    rows = await tx.execute(
        insert.values(subject=subject, count=0, last_at=now)
        .on_conflict_do_update(
            index_elements=[_subject], set_={"last_at": sign_in_failures.c.last_at}
        )
        .returning(sign_in_failures)
    )
    row = rows.mappings().one()
    is_subject = _subject == subject
    blocked_until: datetime | None = row["blocked_until"]
    if blocked_until is not None and blocked_until > now:
        return AttemptCount(row["count"], blocked_until)
    count = 1 if blocked_until is not None else row["count"] + 1
    is_reached = allowed is not None and count >= allowed
    await tx.execute(
        sign_in_failures.update()
        .where(is_subject)
        .values(count=count, last_at=now, blocked_until=now + block_time if is_reached else None)
    )
    return AttemptCount(count, None)


async def _store_known(tx: AsyncConnection, user_id: str, address: str, now: datetime) -> None:
    """Store a known address of a user, and delete the user's expired addresses."""
    columns = known_sign_in_addresses.c
    row = {"user_id": user_id, "address": address}
    await tx.execute(
        known_sign_in_addresses.delete().where(
            columns.user_id == user_id, columns.last_at < now - KNOWN_ADDRESS_LIFETIME
        )
    )
    await tx.execute(insert_ignoring(tx, known_sign_in_addresses).values({**row, "last_at": now}))
    await tx.execute(
        known_sign_in_addresses.update()
        .where(columns.user_id == user_id, columns.address == address)
        .values(last_at=now)
    )
