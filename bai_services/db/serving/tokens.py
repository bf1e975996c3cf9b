"""Store of the tokens of endpoints; only their digests are stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, NotFound, QuotaExceeded, RateLimited
from bai_services.core.listing import ListQuery, Page
from bai_services.core.serving.records import (
    EXPIRED_CHAT_TOKENS_KEPT_FOR,
    EXPIRED_TOKENS_KEPT_FOR,
    MAX_CHAT_TOKENS,
    MAX_TOKENS,
    MAX_TOKENS_PER_USER,
    EndpointToken,
)

from ..accounts.user_domains import lock_active
from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..tables.accounts import users
from ..tables.serving import endpoint_tokens, endpoints
from .routes_version import bump_routes

_SHOWN = [
    column
    for column in endpoint_tokens.columns
    if column.name not in ("digest", "endpoint_id", "user_id")
]
# Tokens of the chat page are not listed and do not count toward the limits of owners.
_IS_LISTED = endpoint_tokens.c.user_id.is_(None)
_LISTING = Listing(
    columns={
        name: endpoint_tokens.c[name]
        for name in ("id", "created_at", "name", "expires_at", "author", "last_used_at")
    },
    default_sort=("name", "id"),
)


class TokenStore:
    """Reads and writes tokens of endpoints. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, endpoint_id: str, query: ListQuery) -> Page[EndpointToken]:
        rows = sa.select(*_SHOWN).where(endpoint_tokens.c.endpoint_id == endpoint_id, _IS_LISTED)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, EndpointToken)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert a token.

        Raises
        ------
        AlreadyExists
            If the endpoint has a token with that name.
        QuotaExceeded
            If the endpoint or its owner has too many tokens.
        """
        endpoint_id = values["endpoint_id"]
        async with self._db.write() as tx:
            # Lock the owner: of two concurrent creations, the second must count the token of the
            # first.
            owner = sa.select(endpoints.c.owner_id).where(endpoints.c.id == endpoint_id)
            await tx.execute(
                sa.select(users.c.id)
                .where(users.c.id == owner.scalar_subquery())
                .with_for_update(key_share=True)
            )
            count = await tx.scalar(
                sa.select(sa.func.count()).where(
                    endpoint_tokens.c.endpoint_id == endpoint_id, _IS_LISTED
                )
            )
            if (count or 0) >= MAX_TOKENS:
                raise QuotaExceeded(
                    f"an endpoint has at most {MAX_TOKENS} tokens; revoke one first",
                    limit=MAX_TOKENS,
                )
            total = await tx.scalar(
                sa.select(sa.func.count())
                .select_from(endpoint_tokens)
                .join(endpoints, endpoint_tokens.c.endpoint_id == endpoints.c.id)
                .where(endpoints.c.owner_id == owner.scalar_subquery(), _IS_LISTED)
            )
            if (total or 0) >= MAX_TOKENS_PER_USER:
                raise QuotaExceeded(
                    f"your endpoints have at most {MAX_TOKENS_PER_USER} tokens together; revoke "
                    "one first",
                    limit=MAX_TOKENS_PER_USER,
                )
            with raise_on_violation(
                AlreadyExists(f"the endpoint has a token named {values['name']}")
            ):
                await tx.execute(endpoint_tokens.insert().values(values))
            await bump_routes(tx)
            await record(tx, audit)

    async def create_for_chat(
        self, values: Mapping[str, Any], now: datetime, audit: AuditEntry
    ) -> None:
        """Insert a token of the chat page.

        Raises
        ------
        RateLimited
            If the user has too many chat-page tokens for this endpoint.
        Conflict
            If the user is no longer active.
        """
        user_id, endpoint_id = values["user_id"], values["endpoint_id"]
        async with self._db.write() as tx:
            await lock_active(tx, user_id)
            count = await tx.scalar(
                sa.select(sa.func.count()).where(
                    endpoint_tokens.c.user_id == user_id,
                    endpoint_tokens.c.endpoint_id == endpoint_id,
                    endpoint_tokens.c.expires_at > now,
                )
            )
            if (count or 0) >= MAX_CHAT_TOKENS:
                raise RateLimited(
                    "you have opened too many chats with this endpoint in the last minutes; try "
                    "again later",
                    limit=MAX_CHAT_TOKENS,
                )
            with raise_on_violation(NotFound("the endpoint was deleted")):
                await tx.execute(endpoint_tokens.insert().values(values))
            await bump_routes(tx)
            await record(tx, audit)

    async def revoke(self, endpoint_id: str, key: str, audit: AuditEntry) -> None:
        """Delete the token with the id or name ``key``.

        Raises
        ------
        NotFound
            If the endpoint has no such token.
        """
        async with self._db.write() as tx:
            deleted = await tx.execute(
                sa.delete(endpoint_tokens).where(
                    endpoint_tokens.c.endpoint_id == endpoint_id,
                    _IS_LISTED,
                    (endpoint_tokens.c.id == key) | (endpoint_tokens.c.name == key),
                )
            )
            if not deleted.rowcount:
                raise NotFound(f"the endpoint has no token {key!r}", token=key)
            await bump_routes(tx)
            await record(tx, audit)

    async def clean_up(self, now: datetime) -> None:
        """Delete tokens that expired long ago."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(endpoint_tokens).where(
                    (endpoint_tokens.c.expires_at < now - EXPIRED_TOKENS_KEPT_FOR)
                    | (
                        endpoint_tokens.c.user_id.is_not(None)
                        & (endpoint_tokens.c.expires_at < now - EXPIRED_CHAT_TOKENS_KEPT_FOR)
                    )
                )
            )
