"""`/me/ssh-keys`"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import StringConstraints

from ..base import APIHandler, operation
from ..fields import Body, NameText, Shown

KeyText = Annotated[str, StringConstraints(max_length=8192, pattern=r"^[^\x00]*$")]


class NewSshKey(Body):
    """Without ``public_key`` a pair is created."""

    name: NameText
    public_key: KeyText | None = None


class SshKey(Shown):
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


class MadeSshKey(SshKey):
    """``private_key`` is only contained in this answer, and only if the pair was created for it."""

    private_key: str | None


class SshKeyList(Shown):
    items: list[SshKey]


class SshKeysHandler(APIHandler):
    @operation("List one's own SSH keys", tag="me", returns=SshKeyList, is_for_sessions=True)
    async def get(self) -> Any:
        return await self.manager.accounts.ssh_keys.list(self.caller)

    @operation(
        "Add an SSH key, or create a pair whose private key is shown once",
        tag="me",
        body=NewSshKey,
        returns=MadeSshKey,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewSshKey) -> Any:
        return await self.manager.accounts.ssh_keys.add(self.caller, body.given())


class SshKeyHandler(APIHandler):
    @operation("Remove an SSH key", tag="me", status=HTTPStatus.NO_CONTENT)
    async def delete(self, name: str) -> None:
        await self.manager.accounts.ssh_keys.remove(self.caller, name)


ROUTES = [
    ("/me/ssh-keys", SshKeysHandler),
    (r"/me/ssh-keys/(?P<name>[^/]+)", SshKeyHandler),
]
