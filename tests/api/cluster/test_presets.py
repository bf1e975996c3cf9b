"""Resource presets over REST."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from ..sessions.test_sessions import wait_for_status


async def test_preset_is_created_changed_and_deleted(api: Api) -> None:
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


async def test_presets_of_different_groups_may_have_the_same_name(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    await admin.post("/resource-groups", {"name": "secret", "is_public": False})
    slots = {"resource_slots": {"cpu": "1"}}
    everywhere = await admin.post("/presets", {"name": "p1", **slots})
    await admin.post("/presets", {"name": "p1", "resource_group": "secret", **slots})
    with pytest.raises(errors.InvalidRequest, match="all groups, secret"):
        await admin.get("/presets/p1")
    # Presets of groups that the user may not use are hidden.
    assert (await user.get("/presets/p1"))["id"] == everywhere["id"]
    with pytest.raises(errors.NotFound):
        await admin.post("/presets", {"name": "p2", "resource_group": "none", **slots})
    with pytest.raises(errors.InUse, match="1 preset"):
        await admin.delete("/resource-groups/secret")


@pytest.mark.parametrize(
    "slots, part",
    [
        pytest.param({}, "at least one", id="no slots"),
        pytest.param({"cuda.shares": "0.255"}, "step", id="quantity is not a multiple of the step"),
        pytest.param(
            {"cuda.shares": 1, "cuda.device": 1},
            "mutually exclusive",
            id="shares and devices of one family",
        ),
        pytest.param({"mem": "-1"}, "amount", id="negative quantity"),
    ],
)
async def test_invalid_preset_is_rejected(api: Api, slots: dict[str, object], part: str) -> None:
    admin = await api.client("admin")
    with pytest.raises(errors.InvalidRequest, match=part):
        await admin.post("/presets", {"name": "p1", "resource_slots": slots})


@pytest.mark.checklist("PRE-02")
async def test_name_and_shared_memory_of_a_preset_are_checked(api: Api) -> None:
    admin = await api.client("admin")
    body = {"name": "a.b-c_1", "resource_slots": {"cpu": 1, "mem": "1g"}}
    with pytest.raises(errors.InvalidRequest, match="must be less than the memory, 1g"):
        await admin.post("/presets", {**body, "shared_memory": "1g"})
    with pytest.raises(errors.InvalidRequest, match="a b"):
        await admin.post("/presets", {**body, "name": "a b"})
    made = await admin.post("/presets", {**body, "shared_memory": "512m"})
    assert made["resource_group"] is None
    path = f"/presets/{made['id']}"
    with pytest.raises(errors.InvalidRequest, match="shared memory"):
        await admin.patch(path, {"resource_slots": {"cpu": 1, "mem": "512m"}})
    changed = await admin.patch(path, {"shared_memory": "1m", "resource_slots": {"mem": "512m"}})
    assert changed["shared_memory"] == "1m"


async def test_list_shows_which_presets_fit_the_free_resources(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    await admin.post("/presets", {"name": "huge", "resource_slots": {"cpu": "4000"}})
    page = await user.get("/presets", project="default", limit=100)
    assert {item["allocatable"] for item in page["items"]} == {False}
    await FakeAgent(api.agent).beat()
    page = await user.get("/presets", project="default", resource_group="default", limit=100)
    can_start = {item["name"]: item["allocatable"] for item in page["items"]}
    assert (can_start["cpu-small"], can_start["huge"]) == (True, False)


async def test_only_superadmins_may_change_presets(api: Api) -> None:
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


ChangeCluster = Callable[[Api], Awaitable[None]]


async def is_allocatable(api: Api, name: str, **query: str) -> bool:
    client = await api.client("user")
    parameters = {"project": "default", "resource_group": "default", **query}
    page = await client.get("/presets", limit=100, **parameters)
    return bool({item["name"]: item["allocatable"] for item in page["items"]}[name])


async def _change_group(api: Api, changes: dict[str, Any]) -> None:
    await (await api.client("admin")).patch("/resource-groups/default", changes)


async def _drain_agent(api: Api) -> None:
    await (await api.client("admin")).patch("/agents/a1", {"schedulable": False})


async def _stop_agent(api: Api) -> None:
    await FakeAgent(api.agent).beat(is_leaving=True)


async def _cap_sessions(api: Api) -> None:
    await (await api.client("admin")).patch(
        "/keypair-policies/default", {"max_concurrent_sessions": 0}
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_drain_agent, id="the only agent is draining"),
        pytest.param(_stop_agent, id="the only agent has left"),
        pytest.param(_cap_sessions, id="the policy allows no session"),
        pytest.param(
            lambda api: _change_group(api, {"total_resource_slots": {"cpu": "0.5"}}),
            id="the preset exceeds the cap of the group",
        ),
    ],
)
async def test_preset_is_not_allocatable_if_a_session_could_not_start(
    api: Api, change: ChangeCluster
) -> None:
    await FakeAgent(api.agent).beat()
    assert await is_allocatable(api, "cpu-small")
    await change(api)
    assert not await is_allocatable(api, "cpu-small")


async def test_preset_is_allocatable_only_for_the_session_types_of_the_group(api: Api) -> None:
    await FakeAgent(api.agent).beat()
    await _change_group(api, {"allowed_session_types": ["batch"]})
    assert await is_allocatable(api, "cpu-small")
    assert await is_allocatable(api, "cpu-small", type="batch")
    assert not await is_allocatable(api, "cpu-small", type="interactive")
    with pytest.raises(
        errors.InvalidRequest, match="'odd' cannot be created; types: interactive, batch"
    ):
        await is_allocatable(api, "cpu-small", type="odd")


async def test_preset_may_be_split_over_devices_only_if_the_group_allows_fragmentation(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    # Two sessions leave 0.4 of each of the two devices. A share of 0.8 then fits only if it may be
    # split over devices.
    admin = await api.client("admin")
    await admin.post("/presets", {"name": "most", "resource_slots": {"cuda.shares": "0.8"}})
    for name in ("half1", "half2"):
        await user.post("/sessions", {"name": name, "resources": {"cuda.shares": "0.6"}})
        await wait_for_status(user, name, "SCHEDULED")
    assert not await is_allocatable(api, "most")
    await _change_group(api, {"scheduler_opts": {"allow_fractional_resource_fragmentation": True}})
    assert await is_allocatable(api, "most")
