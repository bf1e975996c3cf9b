"""Store of the links for resetting a forgotten password."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.mail import Mail

from ..audit import record
from ..database import Database
from ..mails import enqueue
from ..tables.accounts import users
from ..tables.self_service import password_resets
from .callers import PasswordAccount
from .users import Account, read_account


@dataclass(frozen=True, slots=True)
class PasswordReset:
    """A valid link: the hash of its token, and the account at the creation of the link."""

    token_hash: str = field(repr=False)
    user_id: str
    email: str
    password_changed_at: datetime | None


class PasswordResetStore:
    """Reads and writes links for password resets. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(
        self,
        token_hash: str,
        account: Account,
        created_at: datetime,
        expires_at: datetime,
        audit: AuditEntry,
    ) -> None:
        """Insert a link, and delete all expired links."""
        links = password_resets
        async with self._db.write() as tx:
            await tx.execute(links.delete().where(links.c.expires_at <= created_at))
            await tx.execute(
                links.insert().values(
                    token_hash=token_hash,
                    user_id=account.id,
                    email=account.email,
                    password_changed_at=account.password_changed_at,
                    created_at=created_at,
                    expires_at=expires_at,
                )
            )
            await record(tx, audit)

    async def find(
        self, token_hash: str, now: datetime
    ) -> tuple[PasswordReset, PasswordAccount] | None:
        """Return the link and its account; None if the link is unknown, used or expired."""
        links = password_resets.c
        columns = (links.token_hash, links.user_id, links.email, links.password_changed_at)
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(*columns).where(links.token_hash == token_hash, links.expires_at > now)
            )
            row = rows.mappings().one_or_none()
            account = None if row is None else await read_account(tx, "id", row["user_id"])
            if row is None or account is None:
                return None
            password_hash = await tx.scalar(
                sa.select(users.c.password_hash).where(users.c.id == account.id)
            )
        return PasswordReset(**row), PasswordAccount(account, password_hash)

    async def redeem(
        self,
        reset: PasswordReset,
        password_hash: str,
        now: datetime,
        audit: AuditEntry,
        notice: Mail,
    ) -> bool:
        """Set a new password, delete all links of the user, and mark all tokens for revocation.

        Return False and do not change the account if the link was used or has expired, if the
        password or e-mail address was changed, or if the account is not active.
        """
        links = password_resets
        async with self._db.write() as tx:
            used = await tx.execute(
                links.delete().where(
                    links.c.token_hash == reset.token_hash, links.c.expires_at > now
                )
            )
            if not used.rowcount:
                return False
            changed = await tx.execute(
                users.update()
                .where(
                    users.c.id == reset.user_id,
                    users.c.status == "active",
                    users.c.email == reset.email,
                    users.c.password_changed_at.is_not_distinct_from(reset.password_changed_at),
                )
                .values(
                    password_hash=password_hash,
                    password_changed_at=now,
                    need_password_change=False,
                    tokens_to_end="all",
                )
            )
            # Keep the deletions even if the account has changed, because its links are no longer
            # valid.
            await tx.execute(links.delete().where(links.c.user_id == reset.user_id))
            if not changed.rowcount:
                return False
            await enqueue(tx, notice)
            await record(tx, audit)
            return True
