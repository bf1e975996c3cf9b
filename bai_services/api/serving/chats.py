"""`/chats`: the caller's chats with endpoints, and the chat page's tokens for endpoints."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

from bai_services.core.listing import ListQuery, Page
from bai_services.core.serving import chats as records
from bai_services.core.serving.records import ChatToken as ChatTokenRecord

from ..base import APIHandler, operation
from ..fields import ResponseModel
from . import chat_bodies as bodies

_TAG = "chats"


class ChatSummary(ResponseModel):
    """``size``: bytes of the cards as JSON."""

    id: str
    created_at: datetime
    updated_at: datetime
    version: int
    title: str
    messages: int
    size: int


class Chat(ChatSummary):
    cards: list[bodies.ChatCard]


class ChatToken(ResponseModel):
    """``token`` is not stored and is shown only now."""

    token: str
    expires_at: datetime


class ChatsHandler(APIHandler):
    @operation(
        "List your chats; no other user can read them", tag=_TAG, returns=ChatSummary, is_list=True
    )
    async def get(self, query: ListQuery) -> Page[records.ChatSummary]:
        return await self.manager.serving.chats.page(self.caller, query)

    @operation(
        "Store a chat; your oldest chats beyond 100 are deleted",
        tag=_TAG,
        body=bodies.NewChat,
        returns=Chat,
        status=HTTPStatus.CREATED,
        is_expensive=True,
    )
    async def post(self, body: bodies.NewChat) -> records.Chat:
        return await self.manager.serving.chats.create(self.caller, body.model_dump())


class ChatHandler(APIHandler):
    @operation("Read one of your chats", tag=_TAG, returns=Chat)
    async def get(self, key: str) -> records.Chat:
        return await self.manager.serving.chats.get(self.caller, key)

    @operation(
        "Change the title of a chat, or replace its cards",
        tag=_TAG,
        body=bodies.ChatChange,
        returns=Chat,
        is_expensive=True,
    )
    async def patch(self, key: str, body: bodies.ChatChange) -> records.Chat:
        return await self.manager.serving.chats.update(self.caller, key, body.model_dump())

    @operation("Delete one of your chats", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.serving.chats.delete(self.caller, key)


class ChatTokenHandler(APIHandler):
    @operation(
        "Create a token for the chat page, which expires after 20 minutes",
        tag=_TAG,
        returns=ChatToken,
        status=HTTPStatus.CREATED,
    )
    async def post(self, key: str) -> ChatTokenRecord:
        return await self.manager.serving.chats.create_token(self.caller, key)


_ONE = r"/chats/(?P<key>[^/]+)"
ROUTES = [
    ("/chats", ChatsHandler),
    (_ONE, ChatHandler),
    (r"/endpoints/(?P<key>[^/]+)/chat-token", ChatTokenHandler),
]
