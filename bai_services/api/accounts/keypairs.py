"""`/keypairs`"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any

from bai_services.core.listing import ListQuery

from ..base import APIHandler, operation
from ..fields import Body, Count, NameText, Shown


class KeypairChange(Body):
    is_active: bool = True
    is_main: bool = False
    rate_limit: Count = 1
    resource_policy: NameText = ""
    new_secret: bool = False


class NewKeypair(Body):
    user: NameText = ""
    is_active: bool = True
    is_main: bool = False
    rate_limit: Count = 1
    resource_policy: NameText = ""


class Keypair(Shown):
    access_key: str
    created_at: datetime
    user: str
    user_id: str
    role: str
    domain: str
    is_active: bool
    is_main: bool
    rate_limit: int
    last_used: datetime | None
    resource_policy: str


class MadeKeypair(Keypair):
    """``secret_key`` is only contained in this answer."""

    secret_key: str


class ChangedKeypair(Keypair):
    """``secret_key`` is only contained if a new one was requested."""

    secret_key: str | None = None


class CallbackSecret(Shown):
    access_key: str
    callback_secret: str


class KeypairsHandler(APIHandler):
    @operation("List keypairs", tag="keypairs", returns=Keypair, is_list=True)
    async def get(self, query: ListQuery) -> Any:
        return await self.manager.accounts.keypairs.page(self.caller, query)

    @operation(
        "Make a keypair",
        tag="keypairs",
        body=NewKeypair,
        returns=MadeKeypair,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewKeypair) -> Any:
        return await self.manager.accounts.keypairs.create(self.caller, body.given())


class KeypairHandler(APIHandler):
    @operation("Read a keypair", tag="keypairs", returns=Keypair)
    async def get(self, key: str) -> Any:
        return await self.manager.accounts.keypairs.get(self.caller, key)

    @operation("Change a keypair", tag="keypairs", body=KeypairChange, returns=ChangedKeypair)
    async def patch(self, key: str, body: KeypairChange) -> Any:
        return await self.manager.accounts.keypairs.update(self.caller, key, body.given())

    @operation("Delete a keypair", tag="keypairs", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.accounts.keypairs.delete(self.caller, key)


class CallbackSecretHandler(APIHandler):
    @operation(
        "Read the secret that signs a keypair's callbacks", tag="keypairs", returns=CallbackSecret
    )
    async def get(self, key: str) -> Any:
        return await self.manager.accounts.keypairs.callback_secret(self.caller, key)


ROUTES = [
    ("/keypairs", KeypairsHandler),
    (r"/keypairs/(?P<key>[^/]+)", KeypairHandler),
    (r"/keypairs/(?P<key>[^/]+)/callback-secret", CallbackSecretHandler),
]
