"""Store of users; also reads the account of a request's caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.external_identities import Identity
from bai_services.core.accounts.records import (
    PendingSignOut,
    ProjectName,
    Revocation,
    User,
)
from bai_services.core.accounts.roles import Role
from bai_services.core.accounts.user_purges import PURGED
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, Conflict, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.mail import Mail

from ..audit import record
from ..database import Database
from ..folders.domain_moves import move_folders_of
from ..integrity import raise_on_violation
from ..listing import Listing
from ..mails import enqueue
from ..records import records
from ..serving.chat_tokens import delete_unusable_chat_tokens
from ..serving.routes_version import bump_routes
from ..tables.accounts import domains, keypairs, memberships, projects, users
from ..tables.apps import app_shares
from ..tables.external_identities import external_identities
from ..tables.one_time_codes import one_time_codes
from ..tables.serving import endpoint_tokens
from ..tables.sessions import session_templates, sessions
from .checked_users import CheckedUser, lock_unchanged
from .container_uids import next_container_uid
from .projects import add_memberships

# Columns that are not fields of ``User``: the password hash and internal state.
_HIDDEN = {"password_hash", "needs_hub_sign_out", "tokens_to_end"}
_COLUMNS = [column for column in users.columns if column.name not in _HIDDEN]

_LISTING = Listing(
    columns={c.name: c for c in _COLUMNS if c.name != "allowed_client_ip"},
    default_sort=("username",),
)


@dataclass(frozen=True, slots=True)
class UserChange:
    """Changed columns of a user, and further effects of the change."""

    columns: Mapping[str, Any]
    # Ids of all projects of the user after the change; None: unchanged.
    projects: Sequence[str] | None = None
    # The new domain, to which the user's folders and session templates also move; None: unchanged.
    domain: str | None = None
    deactivates_keypairs: bool = False
    # Revoke all tokens and stop the user's servers.
    signs_out: bool = False
    # Revoke all tokens.
    revokes_tokens: bool = False
    notice: Mail | None = None


class UserStore:
    """Reads and writes users. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, domain: str | None = None, user_id: str | None = None
    ) -> Page[User]:
        """Return a page of all users, or only of the users with ``domain`` and ``user_id``."""
        async with self._db.read() as tx:
            page = await _LISTING.page(tx, _visible(domain, user_id), query, _user)
            return page.with_items(await _with_projects(tx, page.items))

    async def find(
        self, key: str, domain: str | None = None, user_id: str | None = None
    ) -> User | None:
        """Return the visible user with the id, user name or e-mail address ``key``, or None."""
        condition = sa.or_(
            users.c.id == key, users.c.username == key.lower(), users.c.email == key.lower()
        )
        async with self._db.read() as tx:
            rows = await tx.execute(_visible(domain, user_id).where(condition))
            # An id takes precedence. User names and e-mail addresses never conflict: only addresses
            # contain @.
            matches = sorted(records(_user, rows), key=lambda user: user.id != key)
            best = await _with_projects(tx, matches[:1])
        return best[0] if best else None

    async def create(
        self,
        values: Mapping[str, Any],
        keypair: Mapping[str, Any],
        project_ids: Sequence[str],
        audit: AuditEntry,
        identity: Identity | None = None,
    ) -> None:
        """Insert a user with the main keypair, memberships and a uid for containers.

        ``identity``: an identity at an OpenID provider to link to the user.

        Raises
        ------
        AlreadyExists
            If any user, including deleted ones, has that user name or e-mail address, or if the
            identity is linked to another user.
        NotFound
            If the domain, a policy or a project does not exist.
        """
        async with self._db.write() as tx:
            await insert_user(tx, values, keypair, project_ids)
            if identity is not None:
                row = {**asdict(identity), "user_id": values["id"]}
                with raise_on_violation(_missing(), _taken()):
                    await tx.execute(external_identities.insert().values(row))
            await record(tx, audit)

    async def update(
        self, checked: CheckedUser, change: UserChange, audit: AuditEntry
    ) -> tuple[User, set[str]]:
        """Update a user; return it and the ids of users who have lost access to a folder.

        Raises
        ------
        Conflict
            If the user has changed since the check, or no active superadmin would remain.
        AlreadyExists
            If another user has the new user name or e-mail address.
        NotFound
            If the user, or a new domain, policy or project, does not exist.
        """
        user_id, columns = checked.id, dict(change.columns)
        if change.signs_out:
            columns["needs_hub_sign_out"] = True
        if change.signs_out or change.revokes_tokens:
            columns["tokens_to_end"] = "all"
        excluded: set[str] = set()
        async with self._db.write() as tx:
            # Call this before the user is locked, because two concurrent demotions could otherwise
            # deadlock.
            await _require_other_superadmin(tx, user_id, columns)
            await lock_unchanged(tx, checked)
            await _require_free_names(tx, columns.get("username"), columns.get("email"), user_id)
            if columns:
                with raise_on_violation(_missing(), _taken()):
                    await tx.execute(users.update().where(users.c.id == user_id).values(columns))
            facts = columns.keys() & {"status", "resource_policy", "domain", "role"}
            if change.domain is not None:
                excluded = await move_folders_of(tx, user_id, change.domain, audit.at)
                await tx.execute(
                    session_templates.update()
                    .where(session_templates.c.owner_id == user_id)
                    .values(domain=change.domain)
                )
                await _end_app_shares(tx, user_id, change.domain)
            if change.projects is not None:
                await tx.execute(memberships.delete().where(memberships.c.user_id == user_id))
                await add_memberships(tx, user_id, change.projects)
            if facts or change.projects is not None:
                await delete_unusable_chat_tokens(tx, user_id)
                # Let the gateways read the routes again: they must reject requests to endpoints of
                # inactive owners.
                await bump_routes(tx)
            if columns.get("status") == "deleted":
                await tx.execute(one_time_codes.delete().where(one_time_codes.c.user_id == user_id))
            if change.deactivates_keypairs:
                await tx.execute(
                    keypairs.update().where(keypairs.c.user_id == user_id).values(is_active=False)
                )
            rows = await tx.execute(sa.select(*_COLUMNS).where(users.c.id == user_id))
            changed = await _with_projects(tx, records(_user, rows))
            if change.notice is not None:
                await enqueue(tx, change.notice)
            await record(tx, audit)
        return changed[0], excluded

    async def pending_sign_outs(self) -> Sequence[PendingSignOut]:
        """Return the users with servers that the Hub must still stop."""
        return await self._due(users.c.needs_hub_sign_out)

    async def pending_revocations(self) -> Sequence[PendingSignOut]:
        """Return the users with browser sign-ins or tokens that the Hub must still revoke."""
        return await self._due(users.c.tokens_to_end.is_not(None))

    async def _due(self, condition: sa.ColumnElement[bool]) -> Sequence[PendingSignOut]:
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(users.c.id, users.c.username, users.c.tokens_to_end).where(condition)
            )
            return records(PendingSignOut, rows)

    async def ids_with_roles(self, roles: Collection[Role]) -> frozenset[str]:
        """Return the ids of all users with one of these roles."""
        async with self._db.read() as tx:
            ids = await tx.scalars(sa.select(users.c.id).where(users.c.role.in_(sorted(roles))))
            return frozenset(ids)

    async def end_chat_tokens(self, user_id: str) -> None:
        """Delete the tokens of the chat page that a user has created."""
        async with self._db.write() as tx:
            ended = await tx.execute(
                endpoint_tokens.delete().where(endpoint_tokens.c.user_id == user_id)
            )
            if ended.rowcount:
                await bump_routes(tx)

    async def mark_revoked(self, user_id: str, revocation: Revocation) -> None:
        """Mark a revocation as done, unless a wider revocation has been requested since."""
        async with self._db.write() as tx:
            await tx.execute(
                users.update()
                .where(users.c.id == user_id, users.c.tokens_to_end == revocation)
                .values(tokens_to_end=None)
            )

    async def live_sessions(self, user_id: str, *, outside_domain: bool = False) -> Sequence[str]:
        """Return the ids of a user's live sessions, or only of sessions in other domains."""
        rows = sa.select(sessions.c.id).where(
            sessions.c.owner_id == user_id, sessions.c.live_name.is_not(None)
        )
        if outside_domain:
            domain = sa.select(users.c.domain).where(users.c.id == user_id).scalar_subquery()
            rows = rows.where(sessions.c.domain != domain)
        async with self._db.read() as tx:
            return list(await tx.scalars(rows))

    async def signed_out(self, user_id: str) -> None:
        """Mark the sign-out of a user at the Hub as done."""
        async with self._db.write() as tx:
            await tx.execute(
                users.update().where(users.c.id == user_id).values(needs_hub_sign_out=False)
            )

    async def set_password(
        self,
        user_id: str,
        password_hash: str,
        changed_at: datetime,
        audit: AuditEntry,
        revocation: Revocation | None = None,
        old_hash: str | None = None,
    ) -> bool:
        """Store a password chosen by the user, and clear ``need_password_change``.

        With ``old_hash``, change nothing and return False if another hash is stored now.
        """
        is_user = users.c.id == user_id
        if old_hash is not None:
            is_user = sa.and_(is_user, users.c.password_hash == old_hash)
        async with self._db.write() as tx:
            changed = await tx.execute(
                users.update()
                .where(is_user)
                .values(
                    password_hash=password_hash,
                    password_changed_at=changed_at,
                    need_password_change=False,
                    # A pending revocation of all tokens includes the revocation of sign-ins.
                    tokens_to_end=sa.case(
                        (users.c.tokens_to_end == "all", "all"),
                        else_=sa.func.coalesce(revocation, users.c.tokens_to_end),
                    ),
                )
            )
            if changed.rowcount:
                await record(tx, audit)
            return bool(changed.rowcount)

    async def rehash(self, user_id: str, old_hash: str, new_hash: str) -> None:
        """Replace a password hash with one of newer parameters, if the password is unchanged."""
        async with self._db.write() as tx:
            await tx.execute(
                users.update()
                .where(users.c.id == user_id, users.c.password_hash == old_hash)
                .values(password_hash=new_hash)
            )


async def insert_user(
    tx: AsyncConnection,
    values: Mapping[str, Any],
    keypair: Mapping[str, Any],
    project_ids: Sequence[str],
) -> None:
    """Insert a user as part of ``tx``; see ``UserStore.create``."""
    await _require_free_names(tx, values["username"], values["email"])
    uid = values.get("container_uid")
    uid = await next_container_uid(tx) if uid is None else uid
    with raise_on_violation(_missing(), _taken()):
        await tx.execute(users.insert().values({**values, "container_uid": uid}))
    with raise_on_violation(NotFound("the keypair policy does not exist")):
        await tx.execute(keypairs.insert().values(keypair))
    await add_memberships(tx, values["id"], project_ids)


async def _end_app_shares(tx: AsyncConnection, user_id: str, domain: str) -> None:
    """Delete a user's app shares that belong to sessions outside ``domain``.

    This applies to shares of the user's own sessions, and to shares that others have given the
    user.
    """
    is_outside = sa.exists().where(
        sessions.c.id == app_shares.c.session_id,
        sessions.c.domain != domain,
        sa.or_(sessions.c.owner_id == user_id, app_shares.c.user_id == user_id),
    )
    await tx.execute(app_shares.delete().where(is_outside))


def _visible(domain: str | None, user_id: str | None) -> sa.Select[Any]:
    rows = sa.select(*_COLUMNS).where(users.c.status != PURGED)
    if domain is not None:
        rows = rows.where(users.c.domain == domain)
    if user_id is not None:
        rows = rows.where(users.c.id == user_id)
    return rows


def _user(*, role: str, **columns: Any) -> User:
    return User(role=Role(role), projects=(), **columns)


async def _with_projects(tx: AsyncConnection, plain_users: Sequence[User]) -> list[User]:
    """Return the users with their projects, sorted by name."""
    rows = await tx.execute(
        sa.select(memberships.c.user_id, projects.c.id, projects.c.name)
        .join(projects, projects.c.id == memberships.c.project_id)
        .where(memberships.c.user_id.in_([user.id for user in plain_users]))
        .order_by(projects.c.name)
    )
    of_user: dict[str, list[ProjectName]] = {}
    for row in rows:
        of_user.setdefault(row.user_id, []).append(ProjectName(row.id, row.name))
    return [replace(user, projects=of_user.get(user.id, ())) for user in plain_users]


def _missing() -> NotFound:
    return NotFound("the domain or the resource policy does not exist")


def _taken() -> AlreadyExists:
    return AlreadyExists("the user name or the e-mail address is taken")


async def _require_free_names(
    tx: AsyncConnection, username: str | None, email: str | None, except_user_id: str = ""
) -> None:
    # Unique constraints enforce the rule; this check only provides a clear message.
    for column, value in ((users.c.username, username), (users.c.email, email)):
        if value is None:
            continue
        status_of_holder = await tx.scalar(
            sa.select(users.c.status).where(column == value, users.c.id != except_user_id)
        )
        if status_of_holder is not None:
            what = column.name.replace("username", "user name")
            by = " by a deleted user" if status_of_holder == "deleted" else ""
            raise AlreadyExists(f"the {what} {value} is taken{by}", field=column.name)


async def _require_other_superadmin(
    tx: AsyncConnection, user_id: str, changes: Mapping[str, Any]
) -> None:
    stays = changes.get("role", Role.SUPERADMIN) == Role.SUPERADMIN
    if stays and changes.get("status", "active") == "active":
        return
    # Lock the rows: two concurrent changes must not remove the last two superadmins.
    ids = await tx.scalars(
        sa.select(users.c.id)
        .where(users.c.role == Role.SUPERADMIN, users.c.status == "active")
        .with_for_update()
    )
    if list(ids) == [user_id]:
        raise Conflict(
            "this is the last active superadmin; create another one first", user_id=user_id
        )


@dataclass(frozen=True, slots=True)
class Account:
    """The attributes of a user that determine sign-in and permissions."""

    id: str
    username: str
    email: str
    role: Role
    status: str
    domain: str
    is_domain_active: bool
    need_password_change: bool
    password_changed_at: datetime | None
    allowed_client_ip: list[str] | None
    main_access_key: str | None
    # (id, name) of each active project
    projects: tuple[tuple[str, str], ...]


# Built at import, because every request reads an account.
_ACCOUNT_NAMES = (
    *("id", "username", "email", "role", "status", "domain", "need_password_change"),
    *("password_changed_at", "allowed_client_ip", "main_access_key"),
)
_ACCOUNT = sa.select(
    *(users.c[name] for name in _ACCOUNT_NAMES),
    domains.c.is_active.label("is_domain_active"),
).join(domains, domains.c.name == users.c.domain)
_PROJECTS_OF = (
    sa.select(projects.c.id, projects.c.name)
    .join(memberships, memberships.c.project_id == projects.c.id)
    .where(memberships.c.user_id == sa.bindparam("user_id"), projects.c.is_active)
    .order_by(projects.c.name)
)


_ACCOUNT_BY = {
    name: _ACCOUNT.where(users.c[name] == sa.bindparam("key"))
    for name in ("id", "username", "email")
}


async def read_account(tx: AsyncConnection, by: str, key: str) -> Account | None:
    """Return the account with ``key`` in the column ``by`` (id, username or email), or None."""
    rows = await tx.execute(_ACCOUNT_BY[by], {"key": key})
    row = rows.mappings().one_or_none()
    if row is None:
        return None
    projects = await tx.execute(_PROJECTS_OF, {"user_id": row["id"]})
    values = {**row, "role": Role(row["role"])}
    return Account(**values, projects=tuple((p.id, p.name) for p in projects))
