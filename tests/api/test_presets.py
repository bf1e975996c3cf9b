"""Presets over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .test_sessions import status_of


async def test_make_change_delete(api: Api) -> None:
    admin = await api.client("admin")
    body = {"name": "tiny", "resource_slots": {"cpu": 1, "mem": "512m"}, "shared_memory": "64m"}
    made = await admin.post("/presets", body)
    assert made["resource_slots"] == {"cpu": "1", "mem": "512m"}
    assert (made["shared_memory"], made["resource_group"], made["allocatable"]) == (
        "64m",
        None,
        None,
    )
    changed = await admin.patch("/presets/tiny", {"shared_memory": None})
    assert changed["shared_memory"] is None
    with pytest.raises(errors.AlreadyExists):
        await admin.post("/presets", body)
    await admin.delete(f"/presets/{made['id']}")
    with pytest.raises(errors.NotFound):
        await admin.get("/presets/tiny")


async def test_a_name_may_be_there_once_per_group(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    await admin.post("/resource-groups", {"name": "secret", "is_public": False})
    slots = {"resource_slots": {"cpu": "1"}}
    everywhere = await admin.post("/presets", {"name": "p1", **slots})
    await admin.post("/presets", {"name": "p1", "resource_group": "secret", **slots})
    with pytest.raises(errors.InvalidRequest, match="all groups, secret"):
        await admin.get("/presets/p1")
    # A user sees no preset of a group that is not theirs.
    assert (await user.get("/presets/p1"))["id"] == everywhere["id"]
    with pytest.raises(errors.NotFound):
        await admin.post("/presets", {"name": "p2", "resource_group": "none", **slots})
    with pytest.raises(errors.InUse, match="1 presets"):
        await admin.delete("/resource-groups/secret")


@pytest.mark.parametrize(
    "slots, part",
    [
        pytest.param({}, "at least one", id="nothing"),
        pytest.param({"cuda.shares": "0.255"}, "step", id="off the step"),
        pytest.param({"cuda.shares": 1, "cuda.device": 1}, "exclude", id="two ways of one family"),
        pytest.param({"mem": "-1"}, "amount", id="negative"),
    ],
)
async def test_what_is_refused(api: Api, slots: dict[str, object], part: str) -> None:
    admin = await api.client("admin")
    with pytest.raises(errors.InvalidRequest, match=part):
        await admin.post("/presets", {"name": "p1", "resource_slots": slots})


async def test_a_list_says_what_could_start_now(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    await admin.post("/presets", {"name": "huge", "resource_slots": {"cpu": "4000"}})
    page = await user.get("/presets", project="default", limit=100)
    assert {item["allocatable"] for item in page["items"]} == {False}
    await FakeAgent(api.agent).beat()
    page = await user.get("/presets", project="default", resource_group="default", limit=100)
    can_start = {item["name"]: item["allocatable"] for item in page["items"]}
    assert (can_start["cpu-small"], can_start["huge"]) == (True, False)


async def test_people_read_and_only_superadmins_write(api: Api) -> None:
    for name in ("user", "domain-admin", "monitor"):
        client = await api.client(name)
        assert (await client.get("/presets"))["total"] >= 1
        for call in (
            client.post("/presets", {"name": "mine", "resource_slots": {"cpu": "1"}}),
            client.patch("/presets/cpu-small", {"shared_memory": "1g"}),
            client.delete("/presets/cpu-small"),
        ):
            with pytest.raises(errors.Forbidden):
                await call


Change = Callable[[Api], Awaitable[None]]


async def is_allocatable(api: Api, name: str, **query: str) -> bool:
    client = await api.client("user")
    asked = {"project": "default", "resource_group": "default", **query}
    page = await client.get("/presets", limit=100, **asked)
    return bool({item["name"]: item["allocatable"] for item in page["items"]}[name])


async def _group(api: Api, changes: dict[str, Any]) -> None:
    await (await api.client("admin")).patch("/resource-groups/default", changes)


async def _drain(api: Api) -> None:
    await (await api.client("admin")).patch("/agents/a1", {"schedulable": False})


async def _say_goodbye(api: Api) -> None:
    await FakeAgent(api.agent).beat(is_leaving=True)


async def _cap_sessions(api: Api) -> None:
    await (await api.client("admin")).patch(
        "/keypair-policies/default", {"max_concurrent_sessions": 0}
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_drain, id="its only agent is drained"),
        pytest.param(_say_goodbye, id="its only agent has said goodbye"),
        pytest.param(_cap_sessions, id="the keypair may have no session"),
        pytest.param(
            lambda api: _group(api, {"total_resource_slots": {"cpu": "0.5"}}),
            id="the group's own cap is smaller",
        ),
    ],
)
async def test_what_holds_a_session_back_holds_its_preset_back(api: Api, change: Change) -> None:
    await FakeAgent(api.agent).beat()
    assert await is_allocatable(api, "cpu-small")
    await change(api)
    assert not await is_allocatable(api, "cpu-small")


async def test_a_group_that_takes_other_types_only_has_presets_as_well(api: Api) -> None:
    await FakeAgent(api.agent).beat()
    await _group(api, {"allowed_session_types": ["batch"]})
    assert await is_allocatable(api, "cpu-small")
    assert await is_allocatable(api, "cpu-small", type="batch")
    assert not await is_allocatable(api, "cpu-small", type="interactive")
    with pytest.raises(
        errors.InvalidRequest, match="'odd' cannot be created; types: interactive, batch"
    ):
        await is_allocatable(api, "cpu-small", type="odd")


async def test_spreading_a_share_follows_the_groups_options(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    # Two devices with 0.4 free each: 0.8 fits only where a share may be spread.
    admin = await api.client("admin")
    await admin.post("/presets", {"name": "most", "resource_slots": {"cuda.shares": "0.8"}})
    for name in ("half1", "half2"):
        await user.post("/sessions", {"name": name, "resources": {"cuda.shares": "0.6"}})
        await status_of(user, name, "SCHEDULED")
    assert not await is_allocatable(api, "most")
    await _group(api, {"scheduler_opts": {"allow_fractional_resource_fragmentation": True}})
    assert await is_allocatable(api, "most")
