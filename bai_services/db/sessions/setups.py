"""Store of session setups, and of the secrets given to sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound
from bai_services.core.record_fields import fields_of
from bai_services.core.sessions.setup import BootstrapScript, Dotfile, Setup, Variable

from ..audit import record
from ..database import Database
from ..integrity import insert_ignoring
from ..scheduling.caps import CHUNK
from ..tables.accounts import memberships, projects, users
from ..tables.sessions import sessions
from ..tables.setups import session_secrets, setups

Part = TypeVar("Part", Variable, Dotfile, BootstrapScript)


@dataclass(frozen=True, slots=True)
class SetupOwner:
    """The user or project of a setup."""

    kind: Literal["user", "project"]
    id: str

    @property
    def key(self) -> str:
        """The primary key of the setup."""
        return f"{self.kind}-{self.id}"


class SetupStore:
    """Reads and writes session setups.

    Each public method is one transaction. Values of secret variables stay encrypted.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def of(self, owner: SetupOwner) -> Setup:
        async with self._db.read() as tx:
            return (await _read(tx, [owner.key])).get(owner.key, Setup())

    async def of_sessions(
        self, owners: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], tuple[Setup, Setup]]:
        """Return the setups of the project and of the owner for each (owner id, project id).

        The setup of a project contains only the part that applies to the owner; it is empty for an
        owner who is no longer a member.
        """
        users_of = [SetupOwner("user", owner_id) for owner_id, _ in owners]
        projects_of = [SetupOwner("project", project_id) for _, project_id in owners]
        async with self._db.read() as tx:
            found = await _read(tx, sorted({one.key for one in (*users_of, *projects_of)}))
            if not found:
                return {}
            owner_ids = sorted({owner_id for owner_id, _ in owners})
            roles = await _roles(tx, owner_ids)
            members = await _members(tx, owner_ids)
        return {
            (user.id, project.id): (
                found.get(project.key, Setup()).for_owner(roles[user.id])
                if (user.id, project.id) in members
                else Setup(),
                found.get(user.key, Setup()),
            )
            for user, project in zip(users_of, projects_of, strict=True)
            if user.id in roles
        }

    async def change(
        self, owner: SetupOwner, change: Callable[[Setup], Setup], audit: AuditEntry
    ) -> Setup:
        """Replace a setup with the result of ``change``, and return the new setup.

        Raises
        ------
        NotFound
            If the user or project does not exist.
        """
        table = users if owner.kind == "user" else projects
        async with self._db.write() as tx:
            # Lock the owner: of two concurrent changes, the second must see the result of the
            # first.
            lock = sa.select(table.c.id).where(table.c.id == owner.id).with_for_update()
            if await tx.scalar(lock) is None:
                raise NotFound(f"the {owner.kind} does not exist")
            old = (await _read(tx, [owner.key])).get(owner.key, Setup())
            new = change(old)
            await tx.execute(setups.delete().where(setups.c.id == owner.key))
            if new != Setup():
                values = {"id": owner.key, f"{owner.kind}_id": owner.id, **_to_row(new)}
                await tx.execute(setups.insert().values(values))
            await record(tx, audit)
        return new

    async def keep_secrets(self, session_id: str, encrypted: str) -> str:
        """Store the secrets of a session, unless secrets are stored; return the stored secrets."""
        async with self._db.write() as tx:
            stored = await _secrets_of(tx, session_id)
            if stored is None:
                values = {"session_id": session_id, "encrypted": encrypted}
                await tx.execute(insert_ignoring(tx, session_secrets).values(values))
                stored = await _secrets_of(tx, session_id)
        return stored or encrypted

    async def secrets_of(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Return the encrypted secrets of sessions, by session id."""
        found: dict[str, str] = {}
        async with self._db.read() as tx:
            for start in range(0, len(session_ids), CHUNK):
                ids = session_ids[start : start + CHUNK]
                found |= {key: text for key, text in await tx.execute(_SECRETS_OF, {"ids": ids})}
        return found

    async def remove_secrets(self, before: datetime, limit: int) -> int:
        """Remove the secrets of at most ``limit`` sessions that ended before a time.

        Return the number of sessions. Their logs are already masked.
        """
        old = (
            sa.select(session_secrets.c.session_id)
            .join(sessions, session_secrets.c.session_id == sessions.c.id)
            .where(sessions.c.live_name.is_(None), sessions.c.terminated_at < before)
            .limit(limit)
        )
        async with self._db.write() as tx:
            removed = await tx.execute(
                session_secrets.delete().where(session_secrets.c.session_id.in_(old))
            )
            return int(removed.rowcount)


_SECRETS_OF = sa.select(session_secrets.c.session_id, session_secrets.c.encrypted).where(
    session_secrets.c.session_id.in_(sa.bindparam("ids", expanding=True))
)
_SETUPS = sa.select(setups).where(setups.c.id.in_(sa.bindparam("keys", expanding=True)))
_ROLES = sa.select(users.c.id, users.c.role).where(
    users.c.id.in_(sa.bindparam("ids", expanding=True))
)
_MEMBERS = sa.select(memberships.c.user_id, memberships.c.project_id).where(
    memberships.c.user_id.in_(sa.bindparam("ids", expanding=True))
)


async def _secrets_of(tx: AsyncConnection, session_id: str) -> str | None:
    rows = (await tx.execute(_SECRETS_OF, {"ids": [session_id]})).all()
    return str(rows[0].encrypted) if rows else None


async def _read(tx: AsyncConnection, keys: Sequence[str]) -> dict[str, Setup]:
    found: dict[str, Setup] = {}
    for start in range(0, len(keys), CHUNK):
        rows = await tx.execute(_SETUPS, {"keys": keys[start : start + CHUNK]})
        found |= {row["id"]: _from_row(row) for row in rows.mappings()}
    return found


async def _roles(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, Role]:
    found: dict[str, Role] = {}
    for start in range(0, len(ids), CHUNK):
        rows = await tx.execute(_ROLES, {"ids": ids[start : start + CHUNK]})
        found |= {row.id: Role(row.role) for row in rows}
    return found


async def _members(tx: AsyncConnection, ids: Sequence[str]) -> set[tuple[str, str]]:
    """Return the pairs of user and project for the memberships of users."""
    found: set[tuple[str, str]] = set()
    for start in range(0, len(ids), CHUNK):
        rows = await tx.execute(_MEMBERS, {"ids": ids[start : start + CHUNK]})
        found |= {(row.user_id, row.project_id) for row in rows}
    return found


def _to_row(setup: Setup) -> dict[str, Any]:
    return {
        "variables": [_to_json(one) for one in setup.variables],
        "dotfiles": [_to_json(one) for one in setup.dotfiles],
        # Not None, because SQLAlchemy would store it as the JSON text "null".
        "bootstrap": sa.null() if setup.bootstrap is None else _to_json(setup.bootstrap),
    }


def _from_row(row: sa.RowMapping) -> Setup:
    bootstrap = row["bootstrap"]
    return Setup(
        tuple(_from_json(Variable, one) for one in row["variables"]),
        tuple(_from_json(Dotfile, one) for one in row["dotfiles"]),
        None if bootstrap is None else _from_json(BootstrapScript, bootstrap),
    )


def _to_json(part: Variable | Dotfile | BootstrapScript) -> dict[str, Any]:
    return {**fields_of(part), "changed_at": part.changed_at.isoformat()}


def _from_json(make: Callable[..., Part], data: Mapping[str, Any]) -> Part:
    part = make(**data)
    return replace(
        part, changed_at=datetime.fromisoformat(data["changed_at"]), role=Role(data["role"])
    )
