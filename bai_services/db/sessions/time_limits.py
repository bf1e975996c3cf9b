"""Read and write time limits and activity of running sessions; read sessions on draining agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.duration_text import format_duration
from bai_services.core.errors import Conflict, InvalidRequest
from bai_services.core.sessions.idle_checks.checkers import CheckerType, CheckStatus
from bai_services.core.sessions.lifecycle import Status

from ..database import Database
from ..tables.accounts import keypair_policies, keypairs
from ..tables.base import UtcDateTime
from ..tables.cluster import agents
from ..tables.sessions import kernels, sessions
from .idle_checks.network import read_network_seconds
from .idle_checks.results import read_checks


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Maximum lifetime set by the keypair's policy, and its extension by the owner."""

    policy_seconds: int
    added_seconds: int
    max_added_seconds: int
    policy: str = ""

    @property
    def seconds(self) -> int:
        return self.policy_seconds + self.added_seconds

    @property
    def rule(self) -> CodedText:
        """The text of the limit."""
        if not self.added_seconds:
            return TextTemplate.LIFETIME.text(maximum_seconds=self.policy_seconds, name=self.policy)
        return TextTemplate.LIFETIME_EXTENDED.text(
            maximum_seconds=self.policy_seconds,
            added_seconds=self.added_seconds,
            name=self.policy,
        )

    @property
    def addable_seconds(self) -> int:
        """Seconds that the owner may still add; 0 if the maximum is reached."""
        return max(self.max_added_seconds - self.added_seconds, 0)


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """Idle timeout of a session, and the keypair policy that sets it; 0 s: no timeout.

    ``limited_at``: when the timeout was introduced or reduced; see ``idleness_of``.
    """

    seconds: int
    policy: str
    limited_at: datetime | None = None


_LIMITS = (
    sa.select(
        sessions.c.id,
        keypair_policies.c.max_session_lifetime_seconds.label("most"),
        sessions.c.lifetime_extension_seconds.label("added"),
        keypair_policies.c.max_lifetime_extension_seconds.label("addable"),
        keypair_policies.c.name.label("policy"),
    )
    .join_from(sessions, keypairs, sessions.c.access_key == keypairs.c.access_key)
    .join(keypair_policies, keypairs.c.resource_policy == keypair_policies.c.name)
    .where(
        sessions.c.id.in_(sa.bindparam("ids", expanding=True)),
        keypair_policies.c.max_session_lifetime_seconds > 0,
    )
)
_IDLE_TIMEOUTS = (
    sa.select(
        sessions.c.id,
        keypair_policies.c.idle_timeout_seconds,
        keypair_policies.c.name,
        keypairs.c.idle_limited_at,
    )
    .join_from(sessions, keypairs, sessions.c.access_key == keypairs.c.access_key)
    .join(keypair_policies, keypairs.c.resource_policy == keypair_policies.c.name)
    .where(
        sessions.c.id.in_(sa.bindparam("ids", expanding=True)),
        keypair_policies.c.idle_timeout_seconds > 0,
    )
)
_DRAINING = (
    sa.select(kernels.c.session_id)
    .join_from(kernels, agents, kernels.c.agent_id == agents.c.id)
    .where(
        kernels.c.session_id.in_(sa.bindparam("ids", expanding=True)),
        agents.c.schedulable.is_(False),
    )
)


async def read_time_limits(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, TimeLimit]:
    """Return the time limit of each session with a limited lifetime."""
    found = await tx.execute(_LIMITS, {"ids": list(ids)})
    return {row.id: TimeLimit(row.most, row.added, row.addable, row.policy) for row in found}


async def read_idle_timeouts(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, IdleTimeout]:
    """Return the idle timeout of each session with an idle timeout."""
    found = await tx.execute(_IDLE_TIMEOUTS, {"ids": list(ids)})
    return {
        row.id: IdleTimeout(row.idle_timeout_seconds, row.name, row.idle_limited_at)
        for row in found
    }


async def read_draining(tx: AsyncConnection, ids: Sequence[str]) -> frozenset[str]:
    """Return the sessions with a kernel on an agent that is not schedulable."""
    return frozenset(await tx.scalars(_DRAINING, {"ids": list(ids)}))


class TimeLimitStore:
    """Extends lifetimes and stores activity. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def extend(self, session_id: str, seconds: int) -> None:
        """Extend the lifetime of a running session.

        Raises
        ------
        Conflict
            If the session is not running, or its lifetime is unlimited.
        InvalidRequest
            If the total extension would exceed the maximum of the policy.
        """
        async with self._db.write() as tx:
            # Update before the check: of two concurrent extensions, the second must check the sum.
            changed = await tx.execute(
                sa.update(sessions)
                .where(sessions.c.id == session_id, sessions.c.status == Status.RUNNING)
                .values(lifetime_extension_seconds=sessions.c.lifetime_extension_seconds + seconds)
            )
            if changed.rowcount == 0:
                raise Conflict("the lifetime of a session can be extended only while it is running")
            limit = (await read_time_limits(tx, [session_id])).get(session_id)
            if limit is None:
                raise Conflict(await _why_not_extendable(tx, session_id), session=session_id)
            if limit.added_seconds > limit.max_added_seconds:
                before = limit.added_seconds - seconds
                left = max(limit.max_added_seconds - before, 0)
                whole, rest = map(format_duration, (limit.max_added_seconds, left))
                allowed = f"extensions of at most {whole} in total, of which {rest} is left"
                if not limit.max_added_seconds:
                    allowed = "no extension"
                raise InvalidRequest(
                    f"the lifetime cannot be extended by {format_duration(seconds)}: keypair "
                    f"policy {limit.policy} allows {allowed}",
                    field="seconds",
                    asked=seconds,
                    limit=limit.max_added_seconds,
                    left=left,
                )

    async def idle_timeouts(self, session_id: str) -> tuple[IdleTimeout, IdleTimeout]:
        """Return two idle timeouts of a session: for its stop, and for its reports.

        The timeout of a network checker has no policy. The first one is the lowest maximum of the
        keypair's policy and of the network checkers that can stop the session. The second one
        includes all bound network checkers, also dry runs.
        """
        async with self._db.read() as tx:
            timeout = (await read_idle_timeouts(tx, [session_id])).get(session_id)
            checks = (await read_checks(tx, [session_id])).get(session_id, [])
            bound = await read_network_seconds(tx, session_id)
        of_policy = [] if timeout is None else [timeout]
        stopping = [
            IdleTimeout(check.checker.settings.max_seconds, "")
            for check in checks
            if check.checker.type is CheckerType.NETWORK
            and not (check.stored.is_dry_run or check.stored.status == CheckStatus.EXCLUDED)
        ]
        reporting = [IdleTimeout(seconds, "") for seconds in bound]
        return _shortest([*of_policy, *stopping]), _shortest([*of_policy, *reporting])

    async def record_activity(
        self, session_id: str, used_at: datetime, reported_at: datetime | None
    ) -> None:
        """Store ``used_at`` as the time of the last activity, unless a later time is stored.

        ``reported_at`` is the time of the session's report; None for activity from another source.
        """
        known = sessions.c.used_at
        known_since = sessions.c.use_known_since
        limited_at = (
            sa.select(keypairs.c.idle_limited_at)
            .where(keypairs.c.access_key == sessions.c.access_key)
            .scalar_subquery()
        )
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(sessions)
                .where(sessions.c.id == session_id, sessions.c.status == Status.RUNNING)
                .values(
                    used_at=sa.case(
                        (known > used_at, known), else_=sa.literal(used_at, UtcDateTime)
                    ),
                    use_heard_at=sessions.c.use_heard_at if reported_at is None else reported_at,
                    use_known_since=known_since
                    if reported_at is None
                    else sa.case(
                        (known_since > limited_at, known_since),
                        else_=sa.literal(reported_at, UtcDateTime),
                    ),
                )
            )


async def _why_not_extendable(tx: AsyncConnection, session_id: str) -> str:
    """Return why a session without a lifetime limit of a policy cannot be extended."""
    for check in (await read_checks(tx, [session_id])).get(session_id, []):
        is_excluded = check.stored.status == CheckStatus.EXCLUDED
        if check.checker.type is CheckerType.LIFETIME and not (
            check.stored.is_dry_run or is_excluded
        ):
            advice = "a keep-alive does not change it; ask an administrator"
            if check.checker.settings.allows_exclusion:
                advice = (
                    "exclude the session from it (bai session exclude-idle-checks); a keep-alive "
                    "does not change it"
                )
            return (
                f"the lifetime of this session is limited by idle checker {check.checker.name}, "
                f"not by a keypair policy, so it cannot be extended: {advice}"
            )
    return "the lifetime of this session is not limited, so it cannot be extended"


def _shortest(timeouts: Iterable[IdleTimeout]) -> IdleTimeout:
    return min(timeouts, key=lambda timeout: timeout.seconds, default=IdleTimeout(0, ""))
