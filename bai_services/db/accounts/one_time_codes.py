"""Store of users' authenticators for one-time codes, and of their recovery codes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, Conflict, NotFound

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..tables.accounts import users
from ..tables.one_time_codes import one_time_codes, recovery_codes
from .checked_users import CheckedUser, lock_unchanged

_codes = one_time_codes.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticator:
    """The authenticator of a user; ``last_step``: the latest time step with a used code."""

    user_id: str
    registration_id: str
    secret_encrypted: str = field(repr=False)
    created_at: datetime
    last_step: int


class OneTimeCodeStore:
    """Reads and writes authenticators and recovery codes. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def find(self, user_id: str) -> Authenticator | None:
        async with self._db.read() as tx:
            rows = await tx.execute(sa.select(one_time_codes).where(_codes.user_id == user_id))
            row = rows.mappings().one_or_none()
            return None if row is None else Authenticator(**row)

    async def registered(self, user_ids: Collection[str]) -> frozenset[str]:
        """Return the ids of the users in ``user_ids`` who have an authenticator."""
        async with self._db.read() as tx:
            query = sa.select(_codes.user_id).where(_codes.user_id.in_(sorted(user_ids)))
            return frozenset(await tx.scalars(query))

    async def recovery_codes_left(self, user_id: str) -> int:
        async with self._db.read() as tx:
            count = await tx.scalar(
                sa.select(sa.func.count()).where(recovery_codes.c.user_id == user_id)
            )
        return count or 0

    async def add(
        self,
        authenticator: Authenticator,
        code_hashes: Sequence[str],
        password_changed_at: datetime | None,
        audit: AuditEntry,
    ) -> None:
        """Store an authenticator and the hashes of its recovery codes.

        Raises
        ------
        AlreadyExists
            If the user has an authenticator.
        Conflict
            If the user's password has changed since ``password_changed_at``.
        """
        user_id = authenticator.user_id
        already_exists = AlreadyExists("you have already registered an authenticator")
        async with self._db.write() as tx:
            is_same = sa.and_(
                users.c.id == user_id,
                users.c.password_changed_at.is_not_distinct_from(password_changed_at),
            )
            # Lock the user, to wait for a password change that is not committed yet.
            locked = sa.select(users.c.id).where(is_same).with_for_update()
            if await tx.scalar(locked) is None:
                raise Conflict("the password has changed; start again")
            with raise_on_violation(NotFound("the user does not exist"), already_exists):
                await tx.execute(
                    one_time_codes.insert().values(
                        user_id=user_id,
                        registration_id=authenticator.registration_id,
                        secret_encrypted=authenticator.secret_encrypted,
                        created_at=authenticator.created_at,
                        last_step=authenticator.last_step,
                    )
                )
            await _add_recovery_codes(tx, user_id, code_hashes)
            await record(tx, audit)

    async def use_step(self, authenticator: Authenticator, step: int) -> bool:
        """Record that the code of a time step was used.

        Return False if the code of this or a later step was used before, or if the authenticator
        was removed.
        """
        async with self._db.write() as tx:
            changed = await tx.execute(
                one_time_codes.update()
                .where(_is(authenticator), _codes.last_step < step)
                .values(last_step=step)
            )
            return bool(changed.rowcount)

    async def use_recovery_code(self, authenticator: Authenticator, code_hash: str) -> bool:
        """Delete a recovery code; return False if it does not exist."""
        columns = recovery_codes.c
        is_code = sa.and_(
            columns.user_id == authenticator.user_id,
            columns.code_hash == code_hash,
            sa.exists().where(_is(authenticator)),
        )
        async with self._db.write() as tx:
            deleted = await tx.execute(recovery_codes.delete().where(is_code))
            return bool(deleted.rowcount)

    async def replace_recovery_codes(
        self, authenticator: Authenticator, code_hashes: Sequence[str], audit: AuditEntry
    ) -> None:
        """Replace all recovery codes; raise ``NotFound`` if the authenticator was removed."""
        async with self._db.write() as tx:
            locked = sa.select(_codes.user_id).where(_is(authenticator)).with_for_update()
            if await tx.scalar(locked) is None:
                raise NotFound("you have no authenticator")
            user_id = authenticator.user_id
            await tx.execute(recovery_codes.delete().where(recovery_codes.c.user_id == user_id))
            await _add_recovery_codes(tx, user_id, code_hashes)
            await record(tx, audit)

    async def remove(self, authenticator: Authenticator, audit: AuditEntry) -> None:
        """Delete an authenticator and its recovery codes; do nothing if it was already removed."""
        async with self._db.write() as tx:
            # This also deletes the recovery codes (ON DELETE CASCADE).
            deleted = await tx.execute(one_time_codes.delete().where(_is(authenticator)))
            if deleted.rowcount:
                await record(tx, audit)

    async def reset(self, user: CheckedUser, audit: AuditEntry) -> None:
        """Delete a user's authenticator; raise ``NotFound`` if the user has none."""
        async with self._db.write() as tx:
            await lock_unchanged(tx, user)
            deleted = await tx.execute(one_time_codes.delete().where(_codes.user_id == user.id))
            if not deleted.rowcount:
                raise NotFound("the user has no authenticator for one-time codes")
            await record(tx, audit)


def _is(authenticator: Authenticator) -> sa.ColumnElement[bool]:
    return sa.and_(
        _codes.user_id == authenticator.user_id,
        _codes.registration_id == authenticator.registration_id,
    )


async def _add_recovery_codes(
    tx: AsyncConnection, user_id: str, code_hashes: Sequence[str]
) -> None:
    rows = [{"user_id": user_id, "code_hash": code_hash} for code_hash in code_hashes]
    await tx.execute(recovery_codes.insert(), rows)
