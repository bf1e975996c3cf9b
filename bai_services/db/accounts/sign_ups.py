"""Store of invitations to sign up, and of sign-ups that wait for a confirmation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.sign_ups import PendingSignUp, SignUpInvitation
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.mail import Mail

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..mails import enqueue
from ..records import first_record
from ..tables.accounts import domains, projects, users
from ..tables.self_service import pending_sign_ups, sign_up_invitations
from .users import insert_user

_invitations = sign_up_invitations.c
_PROJECT = (
    sa.select(projects.c.name).where(projects.c.id == _invitations.project_id).scalar_subquery()
)
_COLUMNS = (
    *(_invitations[name] for name in SignUpInvitation.__dataclass_fields__ if name != "project"),
    _PROJECT.label("project"),
)
_LISTING = Listing(
    columns={
        name: _invitations[name]
        for name in SignUpInvitation.__dataclass_fields__
        if name != "project"
    },
    default_sort=("-created_at", "id"),
)
_PENDING = [pending_sign_ups.c[name] for name in PendingSignUp.__dataclass_fields__]


class SignUpStore:
    """Reads and writes sign-ups and their invitations. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, domain: str | None = None) -> Page[SignUpInvitation]:
        """Return a page of the invitations; ``domain`` restricts them if given."""
        rows = sa.select(*_COLUMNS)
        if domain is not None:
            rows = rows.where(_invitations.domain == domain)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, SignUpInvitation)

    async def invitation(self, invitation_id: str) -> SignUpInvitation | None:
        async with self._db.read() as tx:
            rows = await tx.execute(sa.select(*_COLUMNS).where(_invitations.id == invitation_id))
            return first_record(SignUpInvitation, rows)

    async def usable(self, token_hash: str, now: datetime) -> SignUpInvitation | None:
        """Return the invitation of a token, or None if it is unknown, expired or used up."""
        condition = sa.and_(_invitations.token_hash == token_hash, _is_usable(now))
        async with self._db.read() as tx:
            rows = await tx.execute(sa.select(*_COLUMNS).where(condition))
            return first_record(SignUpInvitation, rows)

    async def add_invitation(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            with raise_on_violation(NotFound("the domain or the project does not exist")):
                await tx.execute(sign_up_invitations.insert().values(values))
            await record(tx, audit)

    async def remove_invitation(self, invitation_id: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            deleted = await tx.execute(
                sign_up_invitations.delete().where(_invitations.id == invitation_id)
            )
            if not deleted.rowcount:
                raise NotFound("there is no such invitation")
            await record(tx, audit)

    async def is_username_taken(self, username: str) -> bool:
        async with self._db.read() as tx:
            found = await tx.scalar(sa.select(users.c.id).where(users.c.username == username))
        return found is not None

    async def is_email_taken(self, email: str) -> bool:
        async with self._db.read() as tx:
            found = await tx.scalar(sa.select(users.c.id).where(users.c.email == email))
        return found is not None

    async def is_domain_active(self, domain: str) -> bool:
        async with self._db.read() as tx:
            found = await tx.scalar(sa.select(domains.c.is_active).where(domains.c.name == domain))
        return bool(found)

    async def add_pending(
        self, sign_up: PendingSignUp, now: datetime, expires_at: datetime, mail: Mail
    ) -> None:
        """Insert a sign-up with its mail, and delete all expired sign-ups.

        Raises
        ------
        InvalidRequest
            If the invitation or the domain has been deleted.
        """
        values = {name: getattr(sign_up, name) for name in PendingSignUp.__dataclass_fields__}
        values |= {"created_at": now, "expires_at": expires_at, "consents": [*sign_up.consents]}
        async with self._db.write() as tx:
            await tx.execute(pending_sign_ups.delete().where(pending_sign_ups.c.expires_at <= now))
            with raise_on_violation(
                InvalidRequest("the invitation was deleted; ask for another", field="invitation")
            ):
                await tx.execute(pending_sign_ups.insert().values(values))
            await enqueue(tx, mail)

    async def remove_pending(self, sign_up_id: str) -> None:
        async with self._db.write() as tx:
            await tx.execute(pending_sign_ups.delete().where(pending_sign_ups.c.id == sign_up_id))

    async def set_token(self, sign_up_id: str, token_hash: str) -> bool:
        """Store the hash of a link's token; return False if the sign-up no longer exists."""
        async with self._db.write() as tx:
            changed = await tx.execute(
                pending_sign_ups.update()
                .where(pending_sign_ups.c.id == sign_up_id)
                .values(token_hash=token_hash)
            )
            return bool(changed.rowcount)

    async def pending(self, token_hash: str, now: datetime) -> PendingSignUp | None:
        """Return the sign-up of a link; None if the link is unknown, used or expired."""
        columns = pending_sign_ups.c
        rows = sa.select(*_PENDING).where(
            columns.token_hash == token_hash, columns.expires_at > now
        )
        async with self._db.read() as tx:
            return first_record(PendingSignUp, await tx.execute(rows))

    async def create_account(
        self,
        values: Mapping[str, Any],
        keypair: Mapping[str, Any],
        invitation_id: str | None,
        default_project: str,
        now: datetime,
        audit: AuditEntry,
    ) -> None:
        """Insert the account of a sign-up, and use its invitation.

        All pending sign-ups with the same e-mail address are deleted. The user joins the project of
        the invitation or, without one, the project ``default_project`` of the domain. An inactive
        project is skipped.

        Raises
        ------
        AlreadyExists
            If any user has the user name or the e-mail address.
        InvalidRequest
            If the invitation was deleted, has expired or is used up.
        """
        async with self._db.write() as tx:
            project_id = None
            if invitation_id is not None:
                project_id = await _use_invitation(tx, invitation_id, now)
            project_ids = await _active_projects(tx, values["domain"], project_id, default_project)
            await insert_user(tx, values, keypair, project_ids)
            await tx.execute(
                pending_sign_ups.delete().where(pending_sign_ups.c.email == values["email"])
            )
            await record(tx, audit)


def _is_usable(now: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(_invitations.expires_at > now, _invitations.uses < _invitations.max_uses)


async def _use_invitation(tx: AsyncConnection, invitation_id: str, now: datetime) -> str | None:
    """Count one use of an invitation; return its project."""
    used = await tx.execute(
        sign_up_invitations.update()
        .where(_invitations.id == invitation_id, _is_usable(now))
        .values(uses=_invitations.uses + 1)
        .returning(_invitations.project_id)
    )
    row = used.one_or_none()
    if row is None:
        raise InvalidRequest(
            "the invitation is invalid, has expired or is used up", field="invitation"
        )
    project_id: str | None = row.project_id
    return project_id


async def _active_projects(
    tx: AsyncConnection, domain: str, project_id: str | None, default_project: str
) -> Sequence[str]:
    is_wanted = (
        projects.c.name == default_project if project_id is None else projects.c.id == project_id
    )
    return list(
        await tx.scalars(
            sa.select(projects.c.id).where(
                projects.c.domain == domain, projects.c.is_active, is_wanted
            )
        )
    )
