"""Read accounts of callers by user name, sign-in name or keypair, and their caps and usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from bai_services.core.scheduling.caps import Scope, ScopeCaps

from ..database import Database
from ..scheduling.caps import read_caps, read_usage
from ..tables.accounts import keypairs, user_policies, users
from .users import Account, read_account


@dataclass(frozen=True, slots=True)
class KeypairAccount:
    """A keypair and its account.

    ``rate_limit`` is the maximum number of requests in 15 minutes.
    """

    account: Account
    access_key: str
    secret_key_encrypted: str = field(repr=False)
    is_active: bool
    rate_limit: int
    last_used: datetime | None


@dataclass(frozen=True, slots=True)
class PasswordAccount:
    account: Account
    password_hash: str | None = field(repr=False)


class AccountStore:
    """Reads the accounts of callers, and stores the last use of keypairs.

    Each public method is one transaction.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def by_username(self, username: str) -> Account | None:
        async with self._db.read() as tx:
            return await read_account(tx, "username", username)

    async def by_access_key(self, access_key: str) -> KeypairAccount | None:
        async with self._db.read() as tx:
            rows = await tx.execute(sa.select(keypairs).where(keypairs.c.access_key == access_key))
            keypair = rows.mappings().one_or_none()
            if keypair is None:
                return None
            account = await read_account(tx, "id", keypair["user_id"])
        if account is None:
            return None
        return KeypairAccount(
            account=account,
            access_key=access_key,
            secret_key_encrypted=keypair["secret_key_encrypted"],
            is_active=keypair["is_active"],
            rate_limit=keypair["rate_limit"],
            last_used=keypair["last_used"],
        )

    async def by_sign_in_name(self, name: str) -> PasswordAccount | None:
        """Return the account with this user name or e-mail address; ``name`` is in lower case."""
        async with self._db.read() as tx:
            account = await read_account(tx, "email" if "@" in name else "username", name)
            if account is None:
                return None
            password_hash = await tx.scalar(
                sa.select(users.c.password_hash).where(users.c.id == account.id)
            )
        return PasswordAccount(account, password_hash)

    async def has_password(self, username: str) -> bool:
        """Return whether a user can sign in with a password."""
        async with self._db.read() as tx:
            password_hash = await tx.scalar(
                sa.select(users.c.password_hash).where(users.c.username == username)
            )
        return password_hash is not None

    async def max_concurrent_logins(self, user_id: str) -> int | None:
        """Return the maximum number of signed-in browsers of a user; None: no limit."""
        async with self._db.read() as tx:
            maximum: int | None = await tx.scalar(
                sa.select(user_policies.c.max_concurrent_logins)
                .join(users, users.c.resource_policy == user_policies.c.name)
                .where(users.c.id == user_id)
            )
        return maximum

    async def caps_and_usage(
        self, scopes: Sequence[Scope]
    ) -> tuple[dict[Scope, ScopeCaps], dict[Scope, dict[str, int]]]:
        """Return the caps and the current usage of each scope, read in one transaction."""
        async with self._db.read() as tx:
            return await read_caps(tx, scopes), await read_usage(tx, scopes)

    async def record_use(self, access_key: str, at: datetime) -> None:
        """Store the time of a keypair's last use."""
        async with self._db.write() as tx:
            await tx.execute(
                keypairs.update().where(keypairs.c.access_key == access_key).values(last_used=at)
            )
