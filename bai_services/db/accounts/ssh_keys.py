"""Store of the SSH public keys of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.records import SshKey
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, Conflict, NotFound

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..records import records
from ..tables.accounts import users
from ..tables.ssh_keys import ssh_keys

_COLUMNS = tuple(c for c in ssh_keys.c if c.name not in ("id", "user_id"))


class SshKeyStore:
    """Reads and writes SSH keys. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def of(self, user_id: str) -> Sequence[SshKey]:
        """Return a user's keys, sorted by name."""
        select = sa.select(*_COLUMNS).where(ssh_keys.c.user_id == user_id).order_by(ssh_keys.c.name)
        async with self._db.read() as tx:
            return records(SshKey, await tx.execute(select))

    async def add(self, values: Mapping[str, Any], max_keys: int, audit: AuditEntry) -> None:
        """Insert a key of a user.

        Raises
        ------
        AlreadyExists
            If the user has a key with that name, or this key under another name.
        Conflict
            If the user already has ``max_keys`` keys.
        NotFound
            If the user does not exist.
        """
        owner = users.c.id == values["user_id"]
        is_owners = ssh_keys.c.user_id == values["user_id"]
        already_exists = AlreadyExists(
            f"you already have an SSH key {values['name']!r}, or this key under another name"
        )
        async with self._db.write() as tx:
            # Lock the user: of two concurrent inserts, the second must count the key of the first.
            await tx.execute(users.update().where(owner).values(username=users.c.username))
            count = await tx.scalar(
                sa.select(sa.func.count()).select_from(ssh_keys).where(is_owners)
            )
            if (count or 0) >= max_keys:
                raise Conflict(
                    f"you have {count} SSH keys, the maximum is {max_keys}; remove one first"
                )
            with raise_on_violation(NotFound("the user does not exist"), already_exists):
                await tx.execute(ssh_keys.insert().values(values))
            await record(tx, audit)

    async def remove(self, user_id: str, name: str, audit: AuditEntry) -> None:
        is_key = sa.and_(ssh_keys.c.user_id == user_id, ssh_keys.c.name == name)
        async with self._db.write() as tx:
            deleted = await tx.execute(ssh_keys.delete().where(is_key))
            if not deleted.rowcount:
                raise NotFound(f"you have no SSH key {name!r}", name=name)
            await record(tx, audit)
