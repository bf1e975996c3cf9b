"""`/session-logs`: search in the logs of ended sessions, and removal of old logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.lifecycle import Event
from bai_services.db.sessions.setups import SetupStore
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.stored_logs import LogPosition, StoredLogStore
from bai_services.db.tables.sessions import kernels
from bai_services.manager.sessions import stored_logs
from tests.testbed.manager import Api

pytestmark = pytest.mark.both_databases

LOG = "start\n" + "x" * 1000 + " Out Of Memory " + "y" * 1000 + "\n" + "out of memory\n" * 7


@pytest.fixture
async def ended(api: Api) -> AsyncIterator[list[str]]:
    """Ids of two ended sessions of *user*, one of *user2* and a pending one, all with a log."""
    ids = []
    store = SessionStore(api.world.manager.database)
    for name, owner in (("lab-1", "user"), ("lab-2", "user"), ("lab-3", "user2"), ("open", "user")):
        client = await api.client(owner)
        spec = {"name": name, "resources": {"cpu": 1, "mem": "1g"}}
        session = await client.post("/sessions", spec)
        if name != "open":
            await store.move(session["id"], Event.STOP_REQUESTED, api.world.clock())
        ids.append(session["id"])
        api.world.clock.advance(seconds=1)
    async with api.world.manager.database.write() as tx:
        await tx.execute(sa.update(kernels).values(log=LOG))
    yield ids


async def search(api: Api, username: str = "user", **query: str) -> dict[str, Any]:
    found: dict[str, Any] = await (await api.client(username)).get("/session-logs", **query)
    return found


async def test_search_finds_only_own_ended_sessions(api: Api, ended: list[str]) -> None:
    found = await search(api, search="oUT of MEM")
    assert [item["session"] for item in found["items"]] == ["lab-2", "lab-1"]
    assert (found["searched"], found["after"]) == (2, None)
    item = found["items"][0]
    assert (item["session_id"], item["kernel"], item["match_count"]) == (ended[1], "main1", 8)
    assert [match["number"] for match in item["matches"]] == [2, 3, 4, 5, 6]
    long = item["matches"][0]["text"]
    assert len(long) == 300 and "Out Of Memory" in long
    assert (await search(api, "admin", search="memory"))["items"] == []
    assert (await search(api, search="elsewhere"))["items"] == []


async def test_search_continues_after_its_limits(
    api: Api, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_logs, "_PAGE", 1)
    monkeypatch.setattr(stored_logs, "MAX_HITS", 1)
    first = await search(api, search="memory")
    assert first["after"] == f"{ended[1]}/main1"
    second = await search(api, search="memory", after=first["after"])
    assert [item["session"] for item in second["items"]] == ["lab-1"]
    assert (await search(api, search="memory", after=second["after"]))["after"] is None
    # A search cannot continue at a position in the session of another user.
    assert (await search(api, search="memory", after=f"{ended[2]}/main1"))["searched"] == 0


@pytest.mark.parametrize(
    "query",
    [{"search": " "}, {"search": "x" * 201}, {"search": "x", "after": "y"}, {}],
)
async def test_malformed_search_is_rejected(api: Api, query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        await search(api, **query)


async def test_old_logs_of_ended_sessions_are_removed(api: Api, ended: list[str]) -> None:
    manager = api.world.manager
    store = StoredLogStore(manager.database)
    before = api.world.clock() + timedelta(days=1)
    assert [await store.remove(before, 2) for _ in range(3)] == [2, 1, 0]
    assert await store.page(await api.world.user_id("user"), None, 9) == []
    assert await store.page(await api.world.user_id("user"), LogPosition("x", "y"), 9) == []
    user = await api.client("user")
    assert (await user.get(f"/sessions/{ended[0]}/logs"))["log"] == ""
    async with manager.database.read() as tx:
        count = sa.select(sa.func.count()).where(kernels.c.log.is_not(None))
        assert await tx.scalar(count) == 1


async def test_secrets_of_ended_sessions_are_removed(api: Api, ended: list[str]) -> None:
    world = api.world
    setups = SetupStore(world.manager.database)
    (running,) = {s["id"] for s in (await (await api.client("user")).get("/sessions"))["items"]} - {
        *ended[:2]
    }
    for session_id in (ended[0], running):
        await setups.keep_secrets(session_id, "encrypted")
    await world.manager.sessions.stored_logs.remove_old()
    assert await setups.secrets_of([ended[0]]) == {ended[0]: "encrypted"}
    world.clock.advance(days=2)
    await world.manager.sessions.stored_logs.remove_old()
    assert await setups.secrets_of([ended[0], running]) == {running: "encrypted"}
