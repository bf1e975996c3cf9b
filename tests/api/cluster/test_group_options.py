"""Scheduler options of resource groups over REST."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from ..sessions.test_sessions import wait_for_status

GROUP = "/resource-groups/default"


async def create(user: Client, name: str, cpu: str) -> None:
    await user.post("/sessions", {"name": name, "resources": {"cpu": cpu, "mem": "1g"}})


async def test_changed_scheduler_option_applies_to_pending_sessions(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    await admin.patch(GROUP, {"scheduler_opts": {"backfill": "off"}})
    await create(user, "runs", "6")
    await wait_for_status(user, "runs", "SCHEDULED")
    await create(user, "large", "8")
    await create(user, "small", "2")
    await create(user, "late", "8")
    await api.world.manager.scheduling.scheduler.run_pass()
    for name in ("large", "small", "late"):
        assert (await user.get(f"/sessions/{name}"))["status"] == "PENDING"

    # Without a notification of the change, the scheduler would read the options only once a minute,
    # which is later than the timeout of 30 s.
    await admin.patch(GROUP, {"scheduler_opts": {"backfill": "aggressive"}})
    await wait_for_status(user, "small", "SCHEDULED", seconds=30)
    await admin.patch(GROUP, {"scheduler": "lifo"})
    for name in ("small", "runs"):
        await user.delete(f"/sessions/{name}")
    await wait_for_status(user, "late", "SCHEDULED", seconds=30)
    assert (await user.get("/sessions/large"))["status"] == "PENDING"


async def test_changes_of_options_keep_the_others(api: Api) -> None:
    admin, user_id = await api.client("admin"), await api.world.user_id("user")

    async def change(changes: dict[str, Any]) -> dict[str, Any]:
        changed = await admin.patch(GROUP, {"scheduler_opts_changes": changes})
        return dict(changed["scheduler_opts"])

    preemption = {"enabled": True, "grace": "2m"}
    await admin.patch(GROUP, {"scheduler_opts": {"placement": "spread", "preemption": preemption}})
    weights = {"user": {"user": 4}}
    changed = await change({"preemption": {"grace": "3m"}, "fair_share": {"weights": weights}})
    assert changed == {
        "placement": "spread",
        "preemption": {"enabled": True, "grace": 180},
        "fair_share": {"weights": {"user": {user_id: 4}}},
    }
    # Weights may have names instead of ids; null resets an option.
    weights = {"user": {user_id: 5}}
    changed = await change({"placement": None, "fair_share": {"weights": weights}})
    assert changed["fair_share"] == {"weights": {"user": {user_id: 5}}}
    assert "placement" not in changed
    changed = await change(
        {"preemption": None, "fair_share": {"weights": {"user": {"user": None}}}}
    )
    assert changed == {"fair_share": {"weights": {"user": {}}}}
    entry = (await admin.get("/audit-log", action="resource-group.update"))["items"][0]
    assert entry["details"]["changes"]["scheduler_opts"]["after"].keys() == {"fair_share"}
    for rejected in (
        {"scheduler_opts_changes": {"speed": None}},
        {"scheduler_opts_changes": {"preemption": {"grace": "soon"}}},
        {"scheduler_opts_changes": {"placement": "spread"}, "scheduler_opts": {}},
    ):
        with pytest.raises(errors.InvalidRequest):
            await admin.patch(GROUP, rejected)


async def test_weights_accept_names_of_users_and_projects(api: Api) -> None:
    admin = await api.client("admin")
    project, user_id = await api.world.project_id(), await api.world.user_id("user")
    named = {"domain": {"default": 2}, "project": {"default/default": 3}, "user": {"user": 4}}
    changed = await admin.patch(GROUP, options(named))
    by_id = {"domain": {"default": 2}, "project": {project: 3}, "user": {user_id: 4}}
    assert changed["scheduler_opts"] == options(by_id)["scheduler_opts"]
    assert (await admin.patch(GROUP, options(by_id)))["scheduler_opts"] == changed["scheduler_opts"]
    made = await admin.post("/resource-groups", {"name": "gpu", **options({"user": {"user": 5}})})
    assert made["scheduler_opts"]["fair_share"]["weights"] == {"user": {user_id: 5}}


@pytest.mark.parametrize(
    "weights, part",
    [
        pytest.param(
            {"user": {"nobody-here": 2}},
            "the weight for user 'nobody-here' matches no user",
            id="unknown user",
        ),
        pytest.param({"project": {"research/x": 2}}, "DOMAIN/NAME", id="unknown project"),
        pytest.param({"project": {"default": 2}}, "DOMAIN/NAME", id="ambiguous project name"),
        pytest.param({"domain": {"nowhere": 2}}, "matches no domain", id="unknown domain"),
        pytest.param({"user": {"user": 1, "USER": 2}}, "two weights", id="user listed twice"),
    ],
)
async def test_invalid_weight_is_rejected(api: Api, weights: Any, part: str) -> None:
    admin = await api.client("admin")
    before = await admin.get(GROUP)
    with pytest.raises(errors.InvalidRequest, match=part):
        await admin.patch(GROUP, options(weights))
    assert await admin.get(GROUP) == before


def options(weights: Any) -> dict[str, Any]:
    return {"scheduler_opts": {"fair_share": {"weights": weights}}}
