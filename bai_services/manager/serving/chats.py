"""Chats of the caller, and the chat page's tokens for endpoints."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict
from bai_services.core.listing import ListQuery, Page
from bai_services.core.serving.chats import (
    Chat,
    ChatSummary,
    chat_size,
    message_count,
    title_of,
)
from bai_services.core.serving.records import ChatToken
from bai_services.db.serving.chats import ChatStore
from bai_services.db.serving.tokens import TokenStore

from ..accounts import authorizer
from ..context import ManagerContext
from .endpoints import Endpoints, target
from .tokens import TOKEN_BYTES, TOKEN_PREFIX, digest_of

CHAT_TOKEN_LIFETIME = timedelta(minutes=20)
# Limits of a chat token, so that a defect of the page cannot overload an endpoint.
_REQUESTS_PER_MINUTE = 120
_MAX_CONCURRENT = 16


class Chats:
    """Manages chats. Only their creators can read, change or delete them, not administrators."""

    def __init__(
        self,
        context: ManagerContext,
        store: ChatStore,
        tokens: TokenStore,
        endpoints: Endpoints,
        changed: Callable[[], None],
    ) -> None:
        """``changed`` notifies the gateways."""
        self._store = store
        self._tokens = tokens
        self._endpoints = endpoints
        self._clock = context.clock
        self._audit = context.audit
        self._changed = changed

    async def page(self, caller: Caller, query: ListQuery) -> Page[ChatSummary]:
        return await self._store.page(_user_id(caller), query)

    async def get(self, caller: Caller, key: str) -> Chat:
        return await self._store.get(_user_id(caller), key)

    async def create(self, caller: Caller, spec: Mapping[str, Any]) -> Chat:
        """Store a chat.

        Raises
        ------
        TooLarge
            If the chat is too large.
        """
        user_id, now = _user_id(caller), self._clock()
        cards = spec["cards"]
        values = {
            "id": str(uuid.uuid4()),
            "created_at": now,
            "updated_at": now,
            "title": spec.get("title") or title_of(cards),
            **_content(cards),
        }
        return await self._store.create(user_id, values)

    async def update(self, caller: Caller, key: str, changes: Mapping[str, Any]) -> Chat:
        """Change the title or replace the cards.

        If ``changes`` contains ``version``, it must be the current version.

        Raises
        ------
        Conflict
            If the chat has another version.
        TooLarge
            If the chat is too large.
        """
        user_id = _user_id(caller)
        values: dict[str, Any] = {}
        if changes.get("title"):
            values["title"] = changes["title"]
        if changes.get("cards") is not None:
            values |= {"updated_at": self._clock(), **_content(changes["cards"])}
        return await self._store.update(user_id, key, changes.get("version"), values)

    async def delete(self, caller: Caller, key: str) -> None:
        await self._store.delete(_user_id(caller), key)

    async def create_token(self, caller: Caller, key: str) -> ChatToken:
        """Create a token for an endpoint; the token expires after ``CHAT_TOKEN_LIFETIME``.

        Gateways accept it only while the caller is active and a member of the endpoint's project.

        Raises
        ------
        Conflict
            If the endpoint is paused or is being deleted.
        RateLimited
            If the caller has too many of these tokens.
        """
        row = await self._endpoints.find(caller, key)
        authorizer.require(caller, "endpoint.chat", target(row))
        if row.is_deleting or row.is_paused:
            state = "is being deleted" if row.is_deleting else "is paused"
            raise Conflict(f"endpoint {row.name} {state}")
        now, token = self._clock(), TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        token_id, expires_at = str(uuid.uuid4()), now + CHAT_TOKEN_LIFETIME
        values = {
            "id": token_id,
            "created_at": now,
            "endpoint_id": row.id,
            "user_id": caller.user_id,
            # Users cannot choose this name, because it is not a slug.
            "name": f"chat {token_id}",
            "digest": digest_of(token),
            "networks": [],
            "expires_at": expires_at,
            "requests_per_minute": _REQUESTS_PER_MINUTE,
            "max_concurrent": _MAX_CONCURRENT,
            "author": caller.username,
            "requests": 0,
            "input_tokens": 0,
            "output_tokens": 0,
        }
        entry = self._audit.entry(
            caller,
            "endpoint.create-chat-token",
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
        )
        await self._tokens.create_for_chat(values, now, entry)
        self._changed()
        return ChatToken(token=token, expires_at=expires_at)


def _user_id(caller: Caller) -> str:
    authorizer.require(caller, "chat.use-own")
    return caller.user_id or ""


def _content(cards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"cards": cards, "messages": message_count(cards), "size": chat_size(cards)}
