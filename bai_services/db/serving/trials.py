"""Store of trials of definitions. The session of a trial has the id of the trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.errors import NotFound, QuotaExceeded
from bai_services.core.serving.records import MAX_LIVE_TRIALS, TRIALS_KEPT
from bai_services.core.sessions.lifecycle import Status

from ..database import Database
from ..records import records
from ..tables.accounts import users
from ..tables.serving import endpoint_trials
from ..tables.sessions import sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial with the state of its session; ``status`` is None without a session."""

    id: str
    created_at: datetime
    owner_id: str
    settings: Mapping[str, Any]
    url: str
    state: Mapping[str, Any]
    is_healthy: bool | None
    ended_at: datetime | None
    log: str
    owner: str
    status: Status | None
    status_info: str
    status_coded: Mapping[str, Any] | None
    started_at: datetime | None
    status_changed_at: datetime | None
    exit_code: int | None


_SESSION = ("status", "status_info", "status_coded", "started_at", "status_changed_at", "exit_code")
_ROWS = (
    sa.select(
        *endpoint_trials.columns,
        users.c.username.label("owner"),
        *(sessions.c[name] for name in _SESSION),
    )
    .join_from(endpoint_trials, users, endpoint_trials.c.owner_id == users.c.id)
    .outerjoin(sessions, endpoint_trials.c.id == sessions.c.id)
)
# These statements run every second. They are built at import, because building one takes longer
# than running it.
_LIVE = _ROWS.where(endpoint_trials.c.ended_at.is_(None)).order_by(
    endpoint_trials.c.created_at, endpoint_trials.c.id
)
_UNENDED_SESSIONS = (
    sa.select(sessions.c.id)
    .join_from(endpoint_trials, sessions, endpoint_trials.c.id == sessions.c.id)
    .where(
        endpoint_trials.c.ended_at.is_not(None),
        sessions.c.status.not_in(sa.bindparam("ended", expanding=True)),
    )
)


class TrialStore:
    """Reads and writes trials. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def create(self, values: Mapping[str, Any]) -> None:
        """Insert a trial. The caller then creates its session.

        Raises
        ------
        QuotaExceeded
            If the owner has too many trials that have not ended.
        """
        owner_id = values["owner_id"]
        live = sa.select(sa.func.count()).where(
            endpoint_trials.c.owner_id == owner_id, endpoint_trials.c.ended_at.is_(None)
        )
        async with self._db.write() as tx:
            # Of two concurrent creations, the second must count the trial of the first.
            await tx.execute(
                sa.select(users.c.id).where(users.c.id == owner_id).with_for_update(key_share=True)
            )
            if (await tx.scalar(live) or 0) >= MAX_LIVE_TRIALS:
                raise QuotaExceeded(
                    f"you may have at most {MAX_LIVE_TRIALS} trials at a time; end one first",
                    limit=MAX_LIVE_TRIALS,
                )
            await tx.execute(endpoint_trials.insert().values(values))

    async def find(self, trial_id: str, owner_id: str) -> TrialRow:
        """Return a trial of a user.

        Raises
        ------
        NotFound
            If the user has no such trial.
        """
        rows = _ROWS.where(endpoint_trials.c.id == trial_id, endpoint_trials.c.owner_id == owner_id)
        async with self._db.read() as tx:
            found = records(_row, await tx.execute(rows))
        if not found:
            raise NotFound(f"you have no trial {trial_id!r}", trial=trial_id)
        return found[0]

    async def live(self) -> list[TrialRow]:
        """Return the trials that have not ended, oldest first."""
        async with self._db.read() as tx:
            return records(_row, await tx.execute(_LIVE))

    async def set_state(self, trial_id: str, state: Mapping[str, Any]) -> None:
        await self._update(trial_id, {"state": state})

    async def end(
        self, trial_id: str, state: Mapping[str, Any], is_healthy: bool, log: str, now: datetime
    ) -> None:
        """End a trial. The caller then stops its session."""
        values = {"state": state, "is_healthy": is_healthy, "log": log, "ended_at": now}
        await self._update(trial_id, values)

    async def _update(self, trial_id: str, values: Mapping[str, Any]) -> None:
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(endpoint_trials)
                .where(endpoint_trials.c.id == trial_id, endpoint_trials.c.ended_at.is_(None))
                .values(values)
            )

    async def unended_sessions(self, ended: Sequence[Status]) -> list[str]:
        """Return the ids of ended trials whose session has a status that is not in ``ended``."""
        async with self._db.read() as tx:
            return list(await tx.scalars(_UNENDED_SESSIONS, {"ended": ended}))

    async def set_url(self, trial_id: str, url: str) -> None:
        """Store the URL of the server of a trial."""
        await self._update(trial_id, {"url": url})

    async def revision_of(self, trial_id: str) -> tuple[str, Mapping[str, Any]] | None:
        """Like ``ReplicaStore.revision_of``: return a trial's id and settings; None if unknown."""
        rows = sa.select(endpoint_trials.c.id, endpoint_trials.c.settings)
        async with self._db.read() as tx:
            found = (await tx.execute(rows.where(endpoint_trials.c.id == trial_id))).one_or_none()
            return None if found is None else (found.id, found.settings)

    async def clean_up(self, before: datetime) -> None:
        """Delete trials that ended before ``before``, and all but each owner's latest trials."""
        numbered = (
            sa.select(
                endpoint_trials.c.id,
                endpoint_trials.c.ended_at,
                sa.func.row_number()
                .over(
                    partition_by=endpoint_trials.c.owner_id,
                    order_by=endpoint_trials.c.ended_at.desc(),
                )
                .label("number"),
            )
            .where(endpoint_trials.c.ended_at.is_not(None))
            .subquery()
        )
        old = sa.select(numbered.c.id).where(
            (numbered.c.number > TRIALS_KEPT) | (numbered.c.ended_at < before)
        )
        async with self._db.write() as tx:
            await tx.execute(sa.delete(endpoint_trials).where(endpoint_trials.c.id.in_(old)))


def _row(*, status: str | None, status_info: str | None, **rest: Any) -> TrialRow:
    return TrialRow(
        status=None if status is None else Status(status), status_info=status_info or "", **rest
    )
