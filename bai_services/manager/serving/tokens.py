"""Tokens for calling an endpoint."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.client_networks import check_networks
from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.names import check_slug
from bai_services.core.serving.records import EndpointToken, EndpointUsage, NewToken
from bai_services.db.serving.tokens import TokenStore
from bai_services.db.serving.usage import UsageStore

from ..accounts import authorizer
from ..context import ManagerContext
from .endpoints import Endpoints, target

# The prefix lets secret scanners recognize tokens.
TOKEN_PREFIX = "bais_"
TOKEN_BYTES = 32


class EndpointTokens:
    """Manages tokens. Only the owner creates them; administrators may list and revoke them."""

    def __init__(
        self,
        context: ManagerContext,
        store: TokenStore,
        usage: UsageStore,
        endpoints: Endpoints,
        changed: Callable[[], None],
    ) -> None:
        """``changed`` notifies the gateways."""
        self._store = store
        self._usage = usage
        self._endpoints = endpoints
        self._clock = context.clock
        self._audit = context.audit
        self._changed = changed

    async def page(self, caller: Caller, key: str, query: ListQuery) -> Page[EndpointToken]:
        row = await self._endpoints.find(caller, key)
        authorizer.require(caller, "endpoint.manage", target(row))
        return await self._store.page(row.id, query)

    async def usage(self, caller: Caller, key: str, query: ListQuery) -> Page[EndpointUsage]:
        """Return the requests by day and token, the last day first."""
        row = await self._endpoints.find(caller, key)
        authorizer.require(caller, "endpoint.manage", target(row))
        return await self._usage.page(row.id, query)

    async def create(self, caller: Caller, key: str, spec: Mapping[str, Any]) -> NewToken:
        """Create a token; only its digest is stored, so it can be shown only now.

        Raises
        ------
        InvalidRequest
            If the name or a network is not valid, or the expiry is in the past.
        AlreadyExists
            If the endpoint has a token with that name.
        """
        row = await self._endpoints.find(caller, key)
        authorizer.require(caller, "endpoint.write", target(row))
        now = self._clock()
        name, expires_at = check_slug("token", spec["name"]), spec.get("expires_at")
        if expires_at is not None and expires_at <= now:
            raise InvalidRequest("expires_at is in the past", field="expires_at")
        token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        values: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "endpoint_id": row.id,
            "name": name,
            "digest": digest_of(token),
            "networks": check_networks(spec.get("networks") or [], "networks"),
            "expires_at": expires_at,
            "requests_per_minute": spec.get("requests_per_minute"),
            "max_concurrent": spec.get("max_concurrent"),
            "author": caller.username,
            "requests": 0,
            "input_tokens": 0,
            "output_tokens": 0,
        }
        entry = self._audit.entry(
            caller,
            "endpoint.create-token",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            token=name,
        )
        await self._store.create(values, entry)
        self._changed()
        return NewToken(id=values["id"], name=name, token=token, expires_at=expires_at)

    async def revoke(self, caller: Caller, key: str, token: str) -> None:
        """Delete a token, by its id or name.

        Raises
        ------
        NotFound
            If the endpoint has no such token.
        """
        row = await self._endpoints.find(caller, key)
        authorizer.require(caller, "endpoint.manage", target(row))
        entry = self._audit.entry(
            caller,
            "endpoint.revoke-token",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            token=token,
        )
        await self._store.revoke(row.id, token, entry)
        self._changed()


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
