"""`/users`"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import Field, SecretStr

from bai_services.core.listing import ListQuery

from ..base import APIHandler, operation
from ..fields import Body, LongText, NameText, Shown

# Not 0: session containers never run as root.
ContainerId = Annotated[int, Field(ge=1, le=2**31 - 1)]
Password = Annotated[SecretStr, Field(max_length=1024)]


class UserChange(Body):
    username: NameText = ""
    email: NameText = ""
    password: Password | None = None
    need_password_change: bool = False
    full_name: NameText = ""
    description: LongText = ""
    status: NameText = ""
    status_info: Annotated[str, Field(max_length=255, pattern=r"^[^\x00]*$")] = ""
    role: NameText = ""
    domain: NameText = ""
    resource_policy: NameText = ""
    allowed_client_ip: list[NameText] | None = None
    container_uid: ContainerId | None = None
    container_gid: ContainerId | None = None

    def given(self) -> dict[str, object]:
        values = super().given()
        if self.password is not None:
            values["password"] = self.password.get_secret_value()
        return values


class NewUser(UserChange):
    username: NameText
    email: NameText
    keypair_policy: NameText = ""
    projects: list[Annotated[str, Field(max_length=130)]] = []


class ProjectOfUser(Shown):
    id: str
    name: str


class User(Shown):
    id: str
    username: str
    email: str
    created_at: datetime
    full_name: str
    description: str
    status: str
    status_info: str
    role: str
    domain: str
    projects: list[ProjectOfUser]
    resource_policy: str
    need_password_change: bool
    password_changed_at: datetime | None
    allowed_client_ip: list[str] | None
    main_access_key: str | None
    container_uid: int | None
    container_gid: int | None
    is_locked: bool
    locked_until: datetime | None


class NewKeypairOfUser(Shown):
    access_key: str
    secret_key: str


class MadeUser(User):
    """``keypair`` contains the secret key of the main keypair, which is shown only here."""

    keypair: NewKeypairOfUser


class UsersHandler(APIHandler):
    @operation("List people", tag="users", returns=User, is_list=True)
    async def get(self, query: ListQuery) -> Any:
        return await self.manager.accounts.users.page(self.caller, query)

    @operation(
        "Create an account with its main keypair",
        tag="users",
        body=NewUser,
        returns=MadeUser,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewUser) -> Any:
        return await self.manager.accounts.users.create(self.caller, body.given())


class UserHandler(APIHandler):
    @operation("Read an account", tag="users", returns=User)
    async def get(self, key: str) -> Any:
        return await self.manager.accounts.users.get(self.caller, key)

    @operation("Change an account", tag="users", body=UserChange, returns=User)
    async def patch(self, key: str, body: UserChange) -> Any:
        return await self.manager.accounts.users.update(self.caller, key, body.given())

    @operation("Delete an account (softly)", tag="users", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.accounts.users.delete(self.caller, key)


class SignOutHandler(APIHandler):
    @operation("End a user's tokens and servers", tag="users", status=HTTPStatus.ACCEPTED)
    async def post(self, key: str) -> None:
        await self.manager.accounts.users.sign_out(self.caller, key)


class UnlockHandler(APIHandler):
    @operation("Reset an account's failed sign-ins", tag="users", status=HTTPStatus.NO_CONTENT)
    async def post(self, key: str) -> None:
        await self.manager.accounts.users.unlock(self.caller, key)


ROUTES = [
    ("/users", UsersHandler),
    (r"/users/(?P<key>[^/]+)", UserHandler),
    (r"/users/(?P<key>[^/]+)/sign-out", SignOutHandler),
    (r"/users/(?P<key>[^/]+)/unlock", UnlockHandler),
]
