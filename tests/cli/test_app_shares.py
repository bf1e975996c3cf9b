"""`bai session share`, `shares` and `unshare`, and preopened ports."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa

from bai_services.db.tables.apps import app_shares
from tests.cli.conftest import Bai
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = ("-r", "cpu=1", "-r", "mem=1g")


@pytest.fixture
async def session(api: Api, agent: FakeAgent, bai: Bai) -> str:
    admin = await api.client("admin")
    policy = (await admin.get("/users/user"))["resource_policy"]
    await admin.patch(f"/user-policies/{policy}", {"app_sharing": "public"})
    made = await bai("session", "create", "lab1", *SMALL, "--preopen", "8501", "--json", by="user")
    assert made.document["preopen_ports"] == [8501]
    return "lab1"


async def test_share_is_created_listed_and_revoked(session: str, bai: Bai) -> None:
    shared = ("session", "share", session, "port-8501", "--user", "user2", "--for", "2h")
    made = (await bai(*shared, "--json", by="user")).document
    assert (made["user"], made["app"]) == ("user2", "port-8501")
    again = await bai("session", "share", session, "tensorboard", "--project", "default", by="user")
    assert again.stdout.strip().startswith("http") and "/shared/" in again.stdout
    for words in (("session", "shares"), ("session", "shares", session)):
        listed = (await bai(*words, "--json", by="user")).document
        assert {item["app"] for item in listed["items"]} == {"port-8501", "tensorboard"}
    gone = await bai("session", "unshare", session, made["id"], by="user")
    assert gone.stdout.strip() == "revoked 1 share of session lab1"
    left = (await bai("session", "shares", session, "--json", by="user")).document
    assert [item["app"] for item in left["items"]] == ["tensorboard"]


async def test_share_with_an_invalid_audience_or_app_is_rejected(session: str, bai: Bai) -> None:
    for words in ((), ("--public", "--user", "user2")):
        done = await bai("session", "share", session, "tensorboard", *words, by="user")
        assert done.code == 2 and "pass exactly one of --user NAME" in done.stderr
    refused = await bai(
        "session", "share", session, "terminal", "--user", "user2", "--json", by="user"
    )
    assert refused.error["error"] == "invalid-request"


async def test_reserved_port_is_rejected(session: str, bai: Bai) -> None:
    refused = await bai("session", "create", "lab2", *SMALL, "--preopen", "2200", by="user")
    assert refused.code == 2 and "used by the session itself" in refused.stderr


async def test_shares_of_all_pages_are_listed(session: str, bai: Bai, api: Api) -> None:
    made = await bai(
        "session", "share", session, "port-8501", "--user", "user2", "--json", by="user"
    )
    async with api.world.manager.database.write() as tx:
        query = sa.select(app_shares).where(app_shares.c.id == made.document["id"])
        row = (await tx.execute(query)).mappings().one()
        copies = [{**row, "id": str(uuid.uuid4())} for _ in range(500)]
        await tx.execute(sa.insert(app_shares), copies)
    listed = (await bai("session", "shares", session, "--json", by="user")).document
    assert (len(listed["items"]), listed["total"]) == (501, 501)
