"""Who is behind a name, a password or a keypair; failures of signing in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from bai_services.core.policy import Scope, ScopeCaps

from .audit import AuditEntry, record
from .caps import read_caps, read_usage
from .database import Database
from .integrity import insert_ignoring
from .tables.accounts import keypairs, sign_in_failures, user_policies, users
from .users import Account, read_account


@dataclass(frozen=True, slots=True)
class KeypairAccount:
    """A keypair that may sign, and whose it is."""

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
    """Reads for each request and sign-in; one public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def by_username(self, username: str) -> Account | None:
        async with self._db.read() as tx:
            return await read_account(tx, "username", username)

    async def by_access_key(self, access_key: str) -> KeypairAccount | None:
        async with self._db.read() as tx:
            found = await tx.execute(sa.select(keypairs).where(keypairs.c.access_key == access_key))
            keypair = found.mappings().one_or_none()
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
        """Return the account that ``name`` (user name or e-mail, lower case) signs in to."""
        async with self._db.read() as tx:
            account = await read_account(tx, "email" if "@" in name else "username", name)
            if account is None:
                return None
            password_hash = await tx.scalar(
                sa.select(users.c.password_hash).where(users.c.id == account.id)
            )
        return PasswordAccount(account, password_hash)

    async def max_concurrent_logins(self, user_id: str) -> int | None:
        """Return in how many browsers a user may be signed in at once; None: in any number."""
        async with self._db.read() as tx:
            found: int | None = await tx.scalar(
                sa.select(user_policies.c.max_concurrent_logins)
                .join(users, users.c.resource_policy == user_policies.c.name)
                .where(users.c.id == user_id)
            )
        return found

    async def caps_and_usage(
        self, scopes: Sequence[Scope]
    ) -> tuple[dict[Scope, ScopeCaps], dict[Scope, dict[str, int]]]:
        """Return what each scope may hold and holds now, of one moment."""
        async with self._db.read() as tx:
            return await read_caps(tx, scopes), await read_usage(tx, scopes)

    async def used(self, access_key: str, at: datetime) -> None:
        async with self._db.write() as tx:
            await tx.execute(
                keypairs.update().where(keypairs.c.access_key == access_key).values(last_used=at)
            )


class SignInFailureStore:
    """Counts attempts per name that was typed, whether or not such an account exists."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def attempt(
        self, subject: str, now: datetime, allowed: int, block_time: timedelta
    ) -> datetime | None:
        """Count one attempt before it is known how it ends; return until when it is blocked.

        None means that the attempt may go on. Counting first means that no
        number of attempts at once gets past the limit. The count starts anew
        ``block_time`` after the last attempt; ``forgive`` clears it.
        """
        async with self._db.write() as tx:
            await tx.execute(
                sign_in_failures.delete().where(
                    sign_in_failures.c.last_at <= now - block_time,
                    sa.or_(
                        sign_in_failures.c.blocked_until.is_(None),
                        sign_in_failures.c.blocked_until <= now,
                    ),
                )
            )
            await tx.execute(
                insert_ignoring(tx, sign_in_failures).values(subject=subject, count=0, last_at=now)
            )
            mine = sign_in_failures.c.subject == subject
            found = await tx.execute(sa.select(sign_in_failures).where(mine).with_for_update())
            row = found.mappings().one()
            blocked_until: datetime | None = row["blocked_until"]
            if blocked_until is not None and blocked_until > now:
                return blocked_until
            count = 1 if blocked_until is not None else row["count"] + 1
            await tx.execute(
                sign_in_failures.update()
                .where(mine)
                .values(
                    count=count,
                    last_at=now,
                    blocked_until=now + block_time if count >= allowed else None,
                )
            )
        return None

    async def forgive(self, subject: str, audit: AuditEntry) -> None:
        """Forget the attempts of a name: one of them was right."""
        async with self._db.write() as tx:
            await tx.execute(sign_in_failures.delete().where(sign_in_failures.c.subject == subject))
            await record(tx, audit)
