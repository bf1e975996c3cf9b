"""Store of the identities of users at OpenID providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import sqlalchemy as sa

from bai_services.core.accounts.external_identities import Identity
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, Conflict, NotFound

from ..audit import record
from ..database import Database
from ..integrity import insert_new, raise_on_violation
from ..records import records
from ..tables.accounts import users
from ..tables.external_identities import external_identities, used_signed_tokens
from .checked_users import CheckedUser, lock_unchanged
from .users import Account, read_account

_columns = external_identities.c
_IDENTITY = sa.select(
    _columns.id, _columns.provider, _columns.issuer, _columns.subject, _columns.created_at
)


class IdentityStore:
    """Reads and writes identities at OpenID providers. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def account_of(self, issuer: str, subject: str) -> Account | None:
        """Return the account to which an identity is linked."""
        is_identity = sa.and_(_columns.issuer == issuer, _columns.subject == subject)
        async with self._db.read() as tx:
            user_id = await tx.scalar(sa.select(_columns.user_id).where(is_identity))
            return None if user_id is None else await read_account(tx, "id", user_id)

    async def redeem(self, token_hash: str, expires_at: datetime, now: datetime) -> bool:
        """Record the use of a signed token; return whether this is the first use."""
        used = used_signed_tokens
        async with self._db.write() as tx:
            await tx.execute(used.delete().where(used.c.expires_at <= now))
            values = {"token_hash": token_hash, "expires_at": expires_at}
            return await insert_new(tx, used, values)

    async def of(self, user_id: str) -> Sequence[Identity]:
        """Return the identities of a user, sorted by provider."""
        query = _IDENTITY.where(_columns.user_id == user_id).order_by(_columns.provider)
        async with self._db.read() as tx:
            return records(Identity, await tx.execute(query))

    async def add(self, user_id: str, identity: Identity, audit: AuditEntry) -> None:
        """Link an identity to a user.

        Raises
        ------
        AlreadyExists
            If the identity is linked to an account, or the user has another identity of the issuer.
        NotFound
            If the user does not exist.
        """
        already_exists = AlreadyExists(
            "this identity is already linked to an account, or the account is already linked to"
            " another identity of the provider"
        )
        async with self._db.write() as tx:
            with raise_on_violation(NotFound("the user does not exist"), already_exists):
                values = {"user_id": user_id, **asdict(identity)}
                await tx.execute(external_identities.insert().values(values))
            await record(tx, audit)

    async def remove_own(self, user_id: str, identity_id: str, audit: AuditEntry) -> None:
        """Remove an identity of a user.

        Raises
        ------
        Conflict
            If the user has no password and no other identity.
        NotFound
            If the user has no such identity.
        """
        async with self._db.write() as tx:
            # Lock the user: of two concurrent removals, the second must see the result of the
            # first.
            user = users.c.id == user_id
            await tx.execute(users.update().where(user).values(username=users.c.username))
            rows = await tx.scalars(sa.select(_columns.id).where(_columns.user_id == user_id))
            ids = list(rows)
            password_hash = await tx.scalar(sa.select(users.c.password_hash).where(user))
            if identity_id not in ids:
                raise NotFound("there is no such identity")
            if len(ids) == 1 and password_hash is None:
                raise Conflict("without this identity you could not sign in: you have no password")
            await tx.execute(
                external_identities.delete().where(
                    _columns.id == identity_id, _columns.user_id == user_id
                )
            )
            await record(tx, audit)

    async def remove(self, user: CheckedUser, identity_id: str, audit: AuditEntry) -> None:
        """Remove an identity of another user; raise ``NotFound`` if it does not exist."""
        async with self._db.write() as tx:
            await lock_unchanged(tx, user)
            deleted = await tx.execute(
                external_identities.delete().where(
                    _columns.id == identity_id, _columns.user_id == user.id
                )
            )
            if not deleted.rowcount:
                raise NotFound("there is no such identity")
            await record(tx, audit)
