"""`/sessions/{key}/why`: the explanation of a pending session, and its position in the queue."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from bai_services.client import Client
from bai_services.db.scheduling.queue import QueueStore
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

SIX = {"cpu": "6", "mem": "1g"}


async def complete_explanation(user: Client, name: str) -> dict[str, Any]:
    async def explanation() -> dict[str, Any] | None:
        why = dict(await user.get(f"/sessions/{name}/why"))
        return why if why["is_complete"] else None

    return dict(await wait_until_async(explanation, 10, "a complete explanation"))


async def test_pending_session_is_explained(api: Api, agent: FakeAgent, user: Client) -> None:
    await user.post("/sessions", {"name": "big1", "resources": SIX})
    await wait_for_status(user, "big1", "SCHEDULED")
    await user.post("/sessions", {"name": "big2", "resources": SIX})
    why = await complete_explanation(user, "big2")
    assert (why["status"], why["position"], why["ahead"]) == ("PENDING", 1, 0)
    checks = {check["check"]: check for check in why["checks"]}
    assert checks["account"]["passed"]
    assert not checks["resources"]["passed"]
    assert checks["resources"]["shortages"] == [{"slot": "cpu", "asked": "6", "available": "2"}]
    # The start cannot be estimated: the running session has no time limit, and no session of its
    # kind has ended yet.
    assert why["estimate"] == {"starts_at": None, "certainty": "unknown"}
    smaller = next(remedy for remedy in why["sooner"] if remedy["kind"] == "smaller")
    assert smaller["facts"] == {"slots": {"cpu": "2"}}


async def test_quota_suggestion_names_own_sessions_that_use_the_slot(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    await admin.patch("/keypair-policies/default", {"total_resource_slots": {"cuda.shares": "0.5"}})
    without = {"cpu": "1", "mem": "1g"}
    half = {**without, "cuda.shares": "0.5"}
    await user.post("/sessions", {"name": "no-gpu", "resources": without})
    await user.post("/sessions", {"name": "uses-gpu", "resources": half})
    for name in ("no-gpu", "uses-gpu"):
        await wait_for_status(user, name, "SCHEDULED")
    await user.post("/sessions", {"name": "waits", "resources": half})
    why = await complete_explanation(user, "waits")
    quota = next(remedy for remedy in why["sooner"] if remedy["kind"] == "quota")
    assert quota["message"].startswith(
        "blocked by the quota of the keypair of user user (policy default) (2 sessions running); "
    )
    assert quota["message"].endswith("; running sessions that use it: uses-gpu")
    assert (quota["facts"]["sessions"], quota["facts"]["first_names"]) == (2, ["uses-gpu"])


async def test_reservation_is_stored_and_read_with_the_next_snapshot(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    for name in ("big1", "big2"):
        await user.post("/sessions", {"name": name, "resources": SIX})
    waiting = await user.get("/sessions/big2")
    store = QueueStore(api.world.manager.database)

    async def reserved_sessions() -> frozenset[str]:
        return (await store.snapshot(datetime.now(UTC))).reserved

    await wait_until_async(reserved_sessions, 10, "a stored reservation")
    assert await reserved_sessions() == {waiting["id"]}


async def test_explanation_of_a_session_that_is_not_pending_is_empty(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "only", "resources": {"cpu": "1", "mem": "1g"}})
    await wait_for_status(user, "only", "SCHEDULED")
    why = await user.get("/sessions/only/why")
    assert (why["position"], why["checks"], why["sooner"], why["is_complete"]) == (
        None,
        [],
        [],
        False,
    )


async def test_changed_queue_position_sends_an_event(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "runs", "resources": SIX})
    await wait_for_status(user, "runs", "SCHEDULED")
    for name in ("first", "second", "third"):
        await user.post("/sessions", {"name": name, "resources": SIX})
    third = (await complete_explanation(user, "third"))["session_id"]

    async def position() -> int | None:
        number = (await user.get(f"/sessions/{third}"))["queue_position"]
        return None if number is None else int(number)

    async def is_third() -> bool:
        return await position() == 3

    await wait_until_async(is_third, 20, "the position in the queue")
    other_user = await api.client("user2")
    async with (
        user.stream("/events", session=third) as own_events,
        other_user.stream("/events") as other_events,
    ):
        lines, other_lines = own_events.aiter_lines(), other_events.aiter_lines()
        assert [await anext(lines), await anext(other_lines)] == [": open"] * 2
        await user.delete("/sessions/first")
        async with asyncio.timeout(30):
            # Skip events for changed reasons, which may come first.
            while await anext(lines) != "event: position":
                pass
            data = json.loads((await anext(lines)).removeprefix("data: "))
        expected = {"kind": "position", "session_id": third, "status": "PENDING", "folder_id": ""}
        assert data == expected | {"owner_id": (await user.get("/me"))["id"]}
        assert await position() == 2
        await other_user.post("/sessions", {"name": "theirs", "resources": SIX})
        async with asyncio.timeout(30):
            while not (line := await anext(other_lines)).startswith("data: "):
                pass
        assert json.loads(line.removeprefix("data: "))["session_id"] != third
