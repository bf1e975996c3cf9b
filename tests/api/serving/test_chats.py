"""Chats over REST, and the tokens of the chat page."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.errors import (
    BaiError,
    Conflict,
    InvalidRequest,
    NotFound,
    RateLimited,
    TooLarge,
)
from bai_services.db.serving.tokens import TokenStore
from bai_services.db.tables.serving import endpoint_tokens
from bai_services.manager.serving.chats import CHAT_TOKEN_LIFETIME
from tests.testbed.manager import Api

from .test_endpoints import make, routes

CARDS: list[dict[str, Any]] = [
    {
        "endpoint": "llm",
        "model": "tiny",
        "system": "Be short.",
        "parameters": {"temperature": 0.5},
        "messages": [
            {"role": "user", "text": "Hello", "attachments": [{"name": "a.png", "kind": "image"}]},
            {"role": "assistant", "text": "Hi", "output_tokens": 1, "total_ms": 20},
        ],
    }
]


@pytest.fixture
def short_lifetime(monkeypatch: pytest.MonkeyPatch) -> timedelta:
    """A lifetime for tests that advance the clock: the API accepts signatures for 15 minutes."""
    lifetime = timedelta(minutes=5)
    monkeypatch.setattr("bai_services.manager.serving.chats.CHAT_TOKEN_LIFETIME", lifetime)
    return lifetime


async def test_chat_is_stored_renamed_and_deleted_by_its_user_only(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    made = await user.post("/chats", {"cards": CARDS})
    assert (made["title"], made["messages"]) == ("Hello", 2)
    read = await user.get(f"/chats/{made['id']}")
    assert read == made
    assert read["cards"][0]["messages"][1]["total_ms"] == 20
    assert read["cards"][0]["parameters"]["temperature"] == 0.5
    api.world.clock.advance(seconds=5)
    renamed = await user.patch(f"/chats/{made['id']}", {"title": "Greeting"})
    # A chat with a new title is not moved to the top of the list.
    assert renamed["updated_at"] == made["updated_at"]
    more = [*CARDS, {"endpoint": "other", "messages": [{"role": "user", "text": "x"}]}]
    changed = await user.patch(f"/chats/{made['id']}", {"cards": more, "version": 2})
    assert (changed["title"], changed["messages"], changed["version"]) == ("Greeting", 3, 3)
    assert changed["updated_at"] > made["updated_at"]
    with pytest.raises(Conflict):
        await user.patch(f"/chats/{made['id']}", {"cards": CARDS, "version": 2})
    (listed,) = (await user.get("/chats", title__contains="greet"))["items"]
    assert "cards" not in listed
    # Not even a superadmin may read or change the chat.
    path = f"/chats/{made['id']}"
    for refused in (admin.get(path), admin.patch(path, {"title": "x"}), admin.delete(path)):
        with pytest.raises(NotFound):
            await refused
    assert (await admin.get("/chats"))["items"] == []
    await user.delete(path)
    with pytest.raises(NotFound):
        await user.get(path)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"cards": []}, InvalidRequest),
        ({"cards": [{}] * 5}, InvalidRequest),
        ({"cards": [{"messages": [{"role": "system", "text": "x"}]}]}, InvalidRequest),
        ({"cards": [{"parameters": {"temperature": 9}}]}, InvalidRequest),
        ({"cards": [{"system": "a\0b"}]}, InvalidRequest),
        ({"title": "a\u202eb", "cards": [{}]}, InvalidRequest),
        (
            {"cards": [{"messages": [{"role": "user", "text": "한" * 100_000}] * 2}]},
            TooLarge,
        ),
    ],
)
async def test_invalid_chats_are_refused(
    api: Api, body: dict[str, Any], error: type[BaiError]
) -> None:
    with pytest.raises(error):
        await (await api.client("user")).post("/chats", body)


async def test_member_of_the_project_gets_a_token_for_the_chat_page(api: Api) -> None:
    owner, member = await api.client("user"), await api.client("user2")
    await make(api, owner)
    made = await member.post("/endpoints/llm/chat-token")
    (routed,) = (await routes(api))["endpoints"][0]["tokens"]
    assert routed["digest"] == hashlib.sha256(made["token"].encode()).hexdigest()
    expires_at = api.world.clock() + CHAT_TOKEN_LIFETIME
    assert routed["expires_at"] == expires_at.timestamp()
    # The owner can neither list nor revoke this token.
    assert (await owner.get("/endpoints/llm/tokens"))["items"] == []
    with pytest.raises(NotFound):
        await owner.delete(f"/endpoints/llm/tokens/{routed['id']}")
    with pytest.raises(NotFound):
        await (await api.client("acme-user")).post("/endpoints/llm/chat-token")
    actions = (await (await api.client("admin")).get("/audit-log", entity="endpoint"))["items"]
    (entry,) = [each for each in actions if each["action"] == "endpoint.create-chat-token"]
    assert entry["actor"] == "user2"
    assert made["token"] not in str(actions)
    await owner.patch("/endpoints/llm", {"is_paused": True})
    with pytest.raises(Conflict, match="paused"):
        await member.post("/endpoints/llm/chat-token")


async def test_token_of_the_chat_page_ends_with_the_membership_or_the_account(
    api: Api, short_lifetime: timedelta
) -> None:
    owner, member, admin = [await api.client(name) for name in ("user", "user2", "admin")]
    await make(api, owner)
    project = (await owner.get("/endpoints/llm"))["project_id"]
    await member.post("/endpoints/llm/chat-token")
    await owner.post("/endpoints/llm/chat-token")

    async def count() -> int:
        return len((await routes(api))["endpoints"][0]["tokens"])

    assert await count() == 2
    await admin.delete(f"/projects/{project}/members/user2")
    assert await count() == 1
    # The former token stays invalid.
    await admin.put(f"/projects/{project}/members/user2")
    assert await count() == 1
    await member.post("/endpoints/llm/chat-token")
    assert await count() == 2
    projects = [each["id"] for each in (await admin.get("/users/user2"))["projects"]]
    for names in ([], projects):
        await admin.patch("/users/user2", {"projects": names})
        assert await count() == 1
    await member.post("/endpoints/llm/chat-token")
    assert await count() == 2
    await admin.post("/users/user2/sign-out", {})
    await api.world.manager.accounts.token_revocations.process_pending()
    assert await count() == 1
    await member.post("/endpoints/llm/chat-token")
    assert await count() == 2
    for status in ("inactive", "active"):
        await admin.patch("/users/user2", {"status": status})
        assert await count() == 1
    api.world.clock.advance(seconds=short_lifetime.total_seconds())
    # Change the endpoint, because gateways read the table only after a change.
    await owner.patch("/endpoints/llm", {"max_queue": 5})
    assert await count() == 0


async def test_tokens_of_the_chat_page_are_limited_and_deleted(
    api: Api, short_lifetime: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.db.serving.tokens.MAX_CHAT_TOKENS", 2)
    owner = await api.client("user")
    await make(api, owner)
    for _ in range(2):
        await owner.post("/endpoints/llm/chat-token")
    with pytest.raises(RateLimited):
        await owner.post("/endpoints/llm/chat-token")
    # Other users and other tokens are not affected.
    await (await api.client("user2")).post("/endpoints/llm/chat-token")
    await owner.post("/endpoints/llm/tokens", {"name": "app"})
    api.world.clock.advance(seconds=short_lifetime.total_seconds())
    await owner.post("/endpoints/llm/chat-token")
    database, now = api.world.manager.database, api.world.clock()

    async def count_after(delay: timedelta) -> int:
        await TokenStore(database).clean_up(now + delay)
        async with database.read() as tx:
            return len((await tx.execute(sa.select(endpoint_tokens.c.id))).all())

    assert await count_after(timedelta(minutes=59)) == 5
    assert await count_after(timedelta(minutes=61)) == 2
    assert await count_after(timedelta(hours=2)) == 1
