"""SSH keys of users over REST."""

from __future__ import annotations

import asyncio

import pytest

from bai_services.core.accounts.ssh_keys import MAX_KEYS
from bai_services.core.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from bai_services.manager.accounts.ssh_keys import new_pair
from tests.testbed.manager import Api


async def test_private_key_of_a_created_pair_is_not_stored(api: Api) -> None:
    user = await api.client("user")
    made = await user.post("/me/ssh-keys", {"name": "laptop"})
    assert "OPENSSH PRIVATE KEY" in made["private_key"]
    (kept,) = (await user.get("/me/ssh-keys"))["items"]
    assert kept == {k: v for k, v in made.items() if k != "private_key"}
    async with api.world.manager.database.read() as tx:
        dump = str((await tx.exec_driver_sql("SELECT * FROM ssh_keys")).all())
        audit = str((await tx.exec_driver_sql("SELECT * FROM audit_log")).all())
    assert "PRIVATE" not in dump + audit
    assert made["fingerprint"] in audit


async def test_public_key_is_added_and_removed(api: Api) -> None:
    user, user2 = await api.client("user"), await api.client("user2")
    _, public = new_pair("me@home")
    added = await user.post("/me/ssh-keys", {"name": "home", "public_key": public})
    assert added["private_key"] is None
    assert added["public_key"] == public.removesuffix(" me@home")
    for again in ({"name": "other", "public_key": public}, {"name": "home"}):
        with pytest.raises(AlreadyExists):
            await user.post("/me/ssh-keys", again)
    # Another user may have the same key under the same name. Each user removes only their own key.
    await user2.post("/me/ssh-keys", {"name": "home", "public_key": public})
    await user2.delete("/me/ssh-keys/home")
    assert len((await user.get("/me/ssh-keys"))["items"]) == 1
    await user.delete("/me/ssh-keys/home")
    with pytest.raises(NotFound):
        await user.delete("/me/ssh-keys/home")


@pytest.mark.both_databases
async def test_concurrent_requests_respect_the_maximum_number_of_keys(api: Api) -> None:
    user = await api.client("user")
    specs = [user.post("/me/ssh-keys", {"name": f"key-{number}"}) for number in range(MAX_KEYS + 3)]
    answers = await asyncio.gather(*specs, return_exceptions=True)
    assert sum(isinstance(answer, Conflict) for answer in answers) == 3
    assert len((await user.get("/me/ssh-keys"))["items"]) == MAX_KEYS


@pytest.mark.parametrize(
    "body", [{"name": "a b"}, {"name": "x", "public_key": "ssh-dss AAAA"}, {"name": "x", "y": 1}]
)
async def test_invalid_ssh_key_is_rejected(api: Api, body: dict[str, str]) -> None:
    user = await api.client("user")
    with pytest.raises(InvalidRequest):
        await user.post("/me/ssh-keys", body)
