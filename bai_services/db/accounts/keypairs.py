"""Store of keypairs. The encrypted secret keys are never part of a list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.records import Keypair
from bai_services.core.accounts.roles import Role
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page

from ..audit import record
from ..database import Database
from ..integrity import delete_unused, raise_on_violation
from ..listing import Listing
from ..records import first_record
from ..tables.accounts import keypair_policies, keypairs, users
from ..tables.sessions import sessions
from .checked_users import CheckedUser, lock_unchanged

_COLUMNS = (
    keypairs.c.access_key,
    keypairs.c.created_at,
    keypairs.c.user_id,
    users.c.username.label("user"),
    users.c.role,
    users.c.domain,
    keypairs.c.is_active,
    keypairs.c.rate_limit,
    keypairs.c.last_used,
    keypairs.c.resource_policy,
    sa.func.coalesce(users.c.main_access_key == keypairs.c.access_key, sa.false()).label("is_main"),
)

_LISTING = Listing(
    columns={column.name: column for column in _COLUMNS if column.name != "is_main"},
    default_sort=("-created_at", "access_key"),
)


class KeypairStore:
    """Reads and writes keypairs. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, domain: str | None = None, user_id: str | None = None
    ) -> Page[Keypair]:
        """Return a page of all keypairs; ``domain`` and ``user_id`` restrict them if given."""
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _visible(domain, user_id), query, _keypair)

    async def one(self, access_key: str) -> Keypair | None:
        async with self._db.read() as tx:
            result = await tx.execute(
                _visible(None, None).where(keypairs.c.access_key == access_key)
            )
            return first_record(_keypair, result)

    async def encrypted_secret(self, access_key: str) -> str | None:
        """Return the encrypted secret key of a keypair; None if the keypair does not exist."""
        async with self._db.read() as tx:
            is_keypair = keypairs.c.access_key == access_key
            secret: str | None = await tx.scalar(
                sa.select(keypairs.c.secret_key_encrypted).where(is_keypair)
            )
        return secret

    async def create(
        self, owner: CheckedUser, values: Mapping[str, Any], is_main: bool, audit: AuditEntry
    ) -> None:
        """Insert a keypair of a user.

        The keypair becomes the main keypair if ``is_main`` is set, or if the user has no main
        keypair.
        """
        user = users.c.id == owner.id
        async with self._db.write() as tx:
            await lock_unchanged(tx, owner)
            with raise_on_violation(NotFound("the keypair policy does not exist")):
                await tx.execute(keypairs.insert().values({**values, "user_id": owner.id}))
            if not is_main:
                user = sa.and_(user, users.c.main_access_key.is_(None))
            await tx.execute(
                users.update().where(user).values(main_access_key=values["access_key"])
            )
            await record(tx, audit)

    async def update(
        self,
        owner: CheckedUser,
        access_key: str,
        changes: Mapping[str, Any],
        is_main: bool,
        audit: AuditEntry,
        at: datetime,
    ) -> Keypair:
        """Change fields of a keypair; ``at`` is the current time."""
        is_keypair = keypairs.c.access_key == access_key
        async with self._db.write() as tx:
            await lock_unchanged(tx, owner)
            if policy := changes.get("resource_policy"):
                await tx.execute(
                    keypairs.update()
                    .where(is_keypair, _has_less_idle_time(policy))
                    .values(idle_limited_at=at)
                )
            if changes:
                with raise_on_violation(NotFound("the keypair policy does not exist")):
                    await tx.execute(keypairs.update().where(is_keypair).values(changes))
            if is_main:
                await tx.execute(
                    users.update().where(users.c.id == owner.id).values(main_access_key=access_key)
                )
            result = await tx.execute(_visible(None, None).where(is_keypair))
            keypair = first_record(_keypair, result)
            if keypair is None:
                raise NotFound("the keypair no longer exists")
            await record(tx, audit)
            return keypair

    async def delete(self, owner: CheckedUser, access_key: str, audit: AuditEntry) -> None:
        """Delete a keypair.

        Raises
        ------
        Conflict
            If the owner has changed since the check.
        InUse
            If the keypair is a user's main keypair, or live sessions use it.
        NotFound
            If the keypair does not exist.
        """
        uses = {
            "users as their main keypair": users.c.main_access_key == access_key,
            "live sessions": sa.and_(
                sessions.c.access_key == access_key, sessions.c.live_name.is_not(None)
            ),
        }
        async with self._db.write() as tx:
            await lock_unchanged(tx, owner)
            row = (keypairs, keypairs.c.access_key == access_key)
            await delete_unused(tx, f"keypair {access_key}", row, uses)
            await record(tx, audit)


def _keypair(*, role: str, is_main: bool, **columns: Any) -> Keypair:
    # Convert ``is_main``, because SQLite returns this computed column as an integer.
    return Keypair(role=Role(role), is_main=bool(is_main), **columns)


def _visible(domain: str | None, user_id: str | None) -> sa.Select[Any]:
    rows = sa.select(*_COLUMNS).join(users, users.c.id == keypairs.c.user_id)
    if domain is not None:
        rows = rows.where(users.c.domain == domain)
    if user_id is not None:
        rows = rows.where(users.c.id == user_id)
    return rows


def _has_less_idle_time(policy: str) -> sa.ColumnElement[bool]:
    """Return the condition that ``policy`` has a shorter idle timeout than a keypair's policy."""
    new, old = keypair_policies.alias("new_policies"), keypair_policies.alias("old_policies")
    seconds = old.c.idle_timeout_seconds
    return sa.exists().where(
        new.c.name == policy,
        new.c.idle_timeout_seconds > 0,
        old.c.name == keypairs.c.resource_policy,
        sa.or_(seconds == 0, seconds > new.c.idle_timeout_seconds),
    )
