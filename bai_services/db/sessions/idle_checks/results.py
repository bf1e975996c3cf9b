"""Read the last results of idle checkers for sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.sessions.idle_checks.checkers import Checker, CheckerSettings, CheckerType

from ...tables.idle_checks import idle_checkers as checkers
from ...tables.idle_checks import session_idle_checks

Key = tuple[str, str]  # session id, checker id


@dataclass(frozen=True, slots=True)
class StoredCheck:
    """The result of a checker for a session, with the users' settings for the session."""

    session_id: str
    checker_id: str
    status: str
    is_dry_run: bool
    is_due: bool
    ends_at: datetime | None
    rule: Mapping[str, Any] | None
    kept_alive_at: datetime | None = None
    keep_alives: int = 0
    is_excluded: bool = False
    expected_ends_at: datetime | None = None

    @property
    def key(self) -> Key:
        return self.session_id, self.checker_id


@dataclass(frozen=True, slots=True)
class ViewedCheck:
    """The result of a checker for a session, with the checker."""

    stored: StoredCheck
    checker: Checker


CHECK_COLUMNS = tuple(session_idle_checks.c[name] for name in StoredCheck.__dataclass_fields__)
_VIEWED = (
    sa.select(
        *CHECK_COLUMNS, checkers.c.name, checkers.c.type.label("checker_type"), checkers.c.settings
    )
    .join_from(session_idle_checks, checkers, session_idle_checks.c.checker_id == checkers.c.id)
    .where(session_idle_checks.c.session_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(session_idle_checks.c.session_id, checkers.c.name)
)


async def read_checks(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, list[ViewedCheck]]:
    """Return the results of the checkers for each of these sessions."""
    found: dict[str, list[ViewedCheck]] = defaultdict(list)
    for row in await tx.execute(_VIEWED, {"ids": list(ids)}):
        stored = StoredCheck(*row[: len(CHECK_COLUMNS)])
        checker = checker_of(stored.checker_id, row.name, row.checker_type, row.settings)
        found[stored.session_id].append(ViewedCheck(stored, checker))
    return found


def checker_of(checker_id: str, name: str, kind: str, settings: Mapping[str, Any]) -> Checker:
    return Checker(checker_id, name, CheckerType(kind), CheckerSettings.from_json(settings))
