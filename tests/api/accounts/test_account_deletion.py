"""Users delete their own accounts over REST, as the Hub's page does."""

from __future__ import annotations

import pytest

from bai_services.core.errors import Conflict, Forbidden, NotSignedIn, SignInBlocked, SignInRefused
from tests.testbed.manager import PASSWORD, Api


async def delete(api: Api, name: str, password: str = PASSWORD) -> None:
    body = {"name": name, "password": password, "client_ip": "192.0.2.1"}
    await api.hub.post("/auth/account-deletion", body)


@pytest.mark.both_databases
async def test_deleted_account_cannot_sign_in_and_last_superadmin_remains(api: Api) -> None:
    for name in ("user", "admin"):
        await api.world.set_password(name)
    user, admin = await api.client("user"), await api.client("admin")
    with pytest.raises(SignInRefused):
        await delete(api, "user", "Wrong-horse-7")
    assert (await user.get("/me"))["username"] == "user"
    await delete(api, "user")
    with pytest.raises(NotSignedIn):
        await user.get("/me")
    with pytest.raises(SignInRefused):
        await delete(api, "user")
    assert (await admin.get("/users/user"))["status"] == "deleted"
    keypairs = await admin.get("/keypairs", user="user")
    assert [keypair["is_active"] for keypair in keypairs["items"]] == [False]
    (entry,) = (await admin.get("/audit-log", action="user.delete-own"))["items"]
    assert (entry["actor"], entry["client_ip"], entry["outcome"]) == ("user", "192.0.2.1", "done")
    with pytest.raises(Conflict, match="last active superadmin"):
        await delete(api, "admin")
    assert (await admin.get("/me"))["username"] == "admin"


async def test_wrong_passwords_are_limited_like_sign_ins(api: Api) -> None:
    await api.world.set_password("user")
    for _ in range(10):
        with pytest.raises(SignInRefused):
            await delete(api, "user", "Wrong-horse-7")
    with pytest.raises(SignInBlocked):
        await delete(api, "user")


async def test_only_the_hub_may_delete_accounts(api: Api) -> None:
    await api.world.set_password("user")
    body = {"name": "user", "password": PASSWORD}
    with pytest.raises(Forbidden):
        await (await api.client("user")).post("/auth/account-deletion", body)
    with pytest.raises(NotSignedIn):
        await api.nobody.post("/auth/account-deletion", body)
