"""`/me/ssh-keys`: the caller's SSH keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import StringConstraints

from bai_services.core.accounts import records

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel

KeyText = Annotated[str, StringConstraints(max_length=8192, pattern=r"^[^\x00]*$")]


class NewSshKey(Body):
    """Without ``public_key`` the server creates a key pair."""

    name: NameText
    public_key: KeyText | None = None


class SshKey(ResponseModel):
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


class CreatedSshKey(SshKey):
    """``private_key``: null unless the server created it; no later response contains it."""

    private_key: str | None


class SshKeyList(ResponseModel):
    items: list[SshKey]


class SshKeysHandler(APIHandler):
    @operation("List your own SSH keys", tag="me", returns=SshKeyList, is_for_sessions=True)
    async def get(self) -> dict[str, Sequence[records.SshKey]]:
        return {"items": await self.manager.accounts.ssh_keys.list(self.caller)}

    @operation(
        "Add an SSH key, or create a key pair",
        tag="me",
        body=NewSshKey,
        returns=CreatedSshKey,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewSshKey) -> records.CreatedSshKey:
        return await self.manager.accounts.ssh_keys.add(self.caller, body.given_fields())


class SshKeyHandler(APIHandler):
    @operation("Remove an SSH key", tag="me", status=HTTPStatus.NO_CONTENT)
    async def delete(self, name: str) -> None:
        await self.manager.accounts.ssh_keys.remove(self.caller, name)


ROUTES = [
    ("/me/ssh-keys", SshKeysHandler),
    (r"/me/ssh-keys/(?P<name>[^/]+)", SshKeyHandler),
]
