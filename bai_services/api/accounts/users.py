"""`/users`: the accounts of users."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from bai_services.core.accounts import records, user_purges
from bai_services.core.listing import ListQuery, Page
from bai_services.i18n.catalogue import pick_language

from ..base import APIHandler, operation
from ..fields import Body, Description, FullName, Line, NameText, ResponseModel

# 0 is not allowed: session containers never run as root.
PosixId = Annotated[int, Field(ge=1, le=2**31 - 1)]
Password = Annotated[SecretStr, Field(max_length=1024)]


class UserChange(Body):
    username: NameText = ""
    email: NameText = ""
    password: Password | None = None
    need_password_change: bool = False
    full_name: FullName = ""
    description: Description = ""
    status: NameText = ""
    status_info: Line = ""
    role: NameText = ""
    domain: NameText = ""
    resource_policy: NameText = ""
    allowed_client_ip: list[NameText] | None = None
    container_uid: PosixId | None = None
    container_gid: PosixId | None = None
    # All projects of the user: a change replaces the whole list.
    projects: list[Annotated[str, Field(max_length=130)]] = []

    def given_fields(self) -> dict[str, object]:
        values = super().given_fields()
        if self.password is not None:
            values["password"] = self.password.get_secret_value()
        return values


class NewUser(UserChange):
    username: NameText
    email: NameText
    keypair_policy: NameText = ""


class ProjectOfUser(ResponseModel):
    id: str
    name: str


class User(ResponseModel):
    id: str
    username: str
    email: str
    created_at: datetime
    full_name: str
    description: str
    status: str
    status_info: str
    awaits_approval: bool
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
    has_authenticator: bool


class NewKeypairOfUser(ResponseModel):
    access_key: str
    secret_key: str


class CreatedUser(User):
    """``keypair``: the main keypair. No later response contains its secret key."""

    keypair: NewKeypairOfUser


class UserPurge(Body):
    """What to do with the user's folders and shared folders.

    ``new_owner``: user who receives the transferred folders; default: the caller.
    """

    folders: Literal["transfer", "delete"] = "transfer"
    shared_folders: Literal["transfer", "delete"] = "transfer"
    new_owner: NameText = ""


class PurgedUser(ResponseModel):
    """``username``: the anonymous name of the remaining row, to which other records refer."""

    id: str
    username: str
    deleted_folders: int
    transferred_folders: int


class UsersHandler(APIHandler):
    @operation("List users", tag="users", returns=User, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.User]:
        return await self.manager.accounts.users.page(self.caller, query)

    @operation(
        "Create a user with a main keypair",
        tag="users",
        body=NewUser,
        returns=CreatedUser,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewUser) -> records.CreatedUser:
        return await self.manager.accounts.users.create(self.caller, body.given_fields())


class UserHandler(APIHandler):
    @operation("Read a user", tag="users", returns=User)
    async def get(self, key: str) -> records.User:
        return await self.manager.accounts.users.get(self.caller, key)

    @operation("Change a user", tag="users", body=UserChange, returns=User)
    async def patch(self, key: str, body: UserChange) -> records.User:
        return await self.manager.accounts.users.update(self.caller, key, body.given_fields())

    @operation("Delete a user (soft delete)", tag="users", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.accounts.users.delete(self.caller, key)


class SignOutHandler(APIHandler):
    @operation(
        "Sign out a user: revoke the tokens, stop the servers",
        tag="users",
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str) -> None:
        await self.manager.accounts.users.sign_out(self.caller, key)


class ApproveHandler(APIHandler):
    @operation("Approve an account that was created by a sign-up", tag="users", returns=User)
    async def post(self, key: str) -> records.User:
        language = pick_language("", self.request.headers.get("Accept-Language", ""))
        return await self.manager.accounts.users.approve(self.caller, key, language)


class PurgeHandler(APIHandler):
    @operation(
        "Permanently remove an inactive user: delete or transfer the folders, make the account "
        "anonymous",
        tag="users",
        body=UserPurge,
        returns=PurgedUser,
    )
    async def post(self, key: str, body: UserPurge) -> user_purges.PurgedUser:
        options = user_purges.PurgeOptions(
            user_purges.PurgeAction(body.folders),
            user_purges.PurgeAction(body.shared_folders),
            body.new_owner,
        )
        return await self.manager.folders.user_purges.purge(self.caller, key, options)


class UnlockHandler(APIHandler):
    @operation(
        "Unlock a user: reset the count of failed sign-ins",
        tag="users",
        status=HTTPStatus.NO_CONTENT,
    )
    async def post(self, key: str) -> None:
        await self.manager.accounts.users.unlock(self.caller, key)


ROUTES = [
    ("/users", UsersHandler),
    (r"/users/(?P<key>[^/]+)", UserHandler),
    (r"/users/(?P<key>[^/]+)/sign-out", SignOutHandler),
    (r"/users/(?P<key>[^/]+)/unlock", UnlockHandler),
    (r"/users/(?P<key>[^/]+)/approve", ApproveHandler),
    (r"/users/(?P<key>[^/]+)/purge", PurgeHandler),
]
