"""`/keypairs`: the users' API keys."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

from bai_services.core.accounts import records
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import Body, Count, NameText, ResponseModel


class KeypairChange(Body):
    """``new_secret``: replace the secret key."""

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


class Keypair(ResponseModel):
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


class CreatedKeypair(Keypair):
    """``secret_key`` cannot be read again later."""

    secret_key: str


class ChangedKeypair(Keypair):
    """The response contains ``secret_key`` only if ``new_secret`` was requested."""

    secret_key: str | None = None


class CallbackSecret(ResponseModel):
    access_key: str
    callback_secret: str


class KeypairsHandler(APIHandler):
    @operation("List keypairs", tag="keypairs", returns=Keypair, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Keypair]:
        return await self.manager.accounts.keypairs.page(self.caller, query)

    @operation(
        "Create a keypair",
        tag="keypairs",
        body=NewKeypair,
        returns=CreatedKeypair,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewKeypair) -> records.KeypairWithSecret:
        return await self.manager.accounts.keypairs.create(self.caller, body.given_fields())


class KeypairHandler(APIHandler):
    @operation("Read a keypair", tag="keypairs", returns=Keypair)
    async def get(self, key: str) -> records.Keypair:
        return await self.manager.accounts.keypairs.get(self.caller, key)

    @operation("Change a keypair", tag="keypairs", body=KeypairChange, returns=ChangedKeypair)
    async def patch(self, key: str, body: KeypairChange) -> records.Keypair:
        return await self.manager.accounts.keypairs.update(self.caller, key, body.given_fields())

    @operation("Delete a keypair", tag="keypairs", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.accounts.keypairs.delete(self.caller, key)


class CallbackSecretHandler(APIHandler):
    @operation(
        "Read the secret that signs the callbacks of a keypair",
        tag="keypairs",
        returns=CallbackSecret,
    )
    async def get(self, key: str) -> dict[str, str]:
        return await self.manager.accounts.keypairs.callback_secret(self.caller, key)


ROUTES = [
    ("/keypairs", KeypairsHandler),
    (r"/keypairs/(?P<key>[^/]+)", KeypairHandler),
    (r"/keypairs/(?P<key>[^/]+)/callback-secret", CallbackSecretHandler),
]
