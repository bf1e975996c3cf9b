"""The store of chats, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from bai_services.core.accounts.user_purges import PURGED
from bai_services.core.errors import Conflict, NotFound
from bai_services.core.listing import ListQuery
from bai_services.core.serving.chats import CHATS_KEPT_FOR
from bai_services.db.serving.chats import ChatStore
from bai_services.db.tables.accounts import users

from .world import NOW, World, make_world

CARDS = [{"messages": [{"role": "user", "text": "안녕 \u2028 'x'"}]}]


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    world = await make_world(database_url)
    yield world
    await world.close()


def chat(key: str, minutes: int = 0) -> dict[str, Any]:
    at = NOW + timedelta(minutes=minutes)
    fields = {"title": key, "messages": 1, "size": 9, "cards": CARDS}
    return {"id": key, "created_at": at, "updated_at": at, **fields}


async def keys(store: ChatStore, user_id: str = "u1") -> list[str]:
    return [each.id for each in (await store.page(user_id, ListQuery())).items]


async def test_oldest_chats_beyond_the_limit_are_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.db.serving.chats.MAX_CHATS_PER_USER", 3)
    store = ChatStore(world.database)
    await store.create("u2", chat("other", -99))
    for number in range(3):
        await store.create("u1", chat(f"c{number}", number))
    await store.update("u1", "c0", None, {"updated_at": NOW + timedelta(hours=1)})
    # A new chat is kept, even if its time is the oldest.
    await store.create("u1", chat("new", -1))
    assert await keys(store) == ["c0", "c2", "new"]
    await asyncio.gather(*(store.create("u1", chat(f"d{n}", n + 9)) for n in range(5)))
    assert len(await keys(store)) == 3
    assert await keys(store, "u2") == ["other"]


async def test_purge_during_a_request_leaves_no_chat(world: World) -> None:
    async with world.database.write() as tx:
        await tx.execute(users.update().where(users.c.id == "u1").values(status=PURGED))
    store = ChatStore(world.database)
    with pytest.raises(Conflict):
        await store.create("u1", chat("late"))
    assert await keys(store) == []


async def test_chats_of_another_user_do_not_exist(world: World) -> None:
    store = ChatStore(world.database)
    made = await store.create("u1", chat("c"))
    assert made.cards == CARDS
    for call in (
        store.get("u2", "c"),
        store.update("u2", "c", None, {"title": "x"}),
        store.delete("u2", "c"),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await store.get("u1", "c")) == made


async def test_only_one_of_two_concurrent_changes_of_a_version_succeeds(world: World) -> None:
    store = ChatStore(world.database)
    await store.create("u1", chat("c"))
    results = await asyncio.gather(
        *(store.update("u1", "c", 1, {"title": str(n)}) for n in range(2)), return_exceptions=True
    )
    assert sorted(type(each) is Conflict for each in results) == [False, True]
    assert (await store.get("u1", "c")).version == 2


async def test_chats_that_have_not_changed_for_long_are_deleted(world: World) -> None:
    store = ChatStore(world.database)
    await store.create("u1", chat("old"))
    await store.create("u1", chat("new", 1))
    await store.clean_up(NOW + CHATS_KEPT_FOR + timedelta(seconds=1))
    assert await keys(store) == ["new"]
