"""`POST /sessions/preview`: the problems of a request, or the estimated start and the caps."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .test_sessions import QUARTER, wait_for_status


async def preview(user: Client, **request: Any) -> dict[str, Any]:
    return dict(await user.post("/sessions/preview", {"resources": QUARTER, **request}))


def without_ids(value: Any) -> Any:
    """Return an explanation's value without session ids, because a preview has a random id."""
    if not isinstance(value, list):
        return value
    return [{k: v for k, v in each.items() if k != "session_id"} for each in value]


async def counts(api: Api) -> tuple[int, int]:
    """Return the number of sessions and of audit entries."""
    admin = await api.client("admin")
    sessions, entries = await admin.get("/sessions"), await admin.get("/audit-log")
    return sessions["total"], entries["total"]


async def test_the_shared_memory_that_the_image_prefers_is_the_default_if_it_fits(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    image = (await admin.get("/images", name="local/session:latest"))["items"][0]
    labels = {**image["labels"], "ai.backend.resource.preferred.shmem": "512m"}
    await admin.patch(f"/images/{image['id']}", {"labels": labels})

    async def shared_memory(**request: Any) -> str:
        return str((await preview(user, **request))["session"]["shared_memory"])

    assert await shared_memory(resources={"cpu": "1", "mem": "1g"}) == "512m"
    assert await shared_memory(resources={"cpu": "1", "mem": "256m"}) == "64m"
    assert await shared_memory(resources={"cpu": "1", "mem": "1g"}, shared_memory="1m") == "1m"


async def test_preview_shows_an_immediate_start_and_creates_no_session(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await (await api.client("admin")).patch(
        "/domains/default", {"total_resource_slots": {"cpu": "4"}}
    )
    before = await counts(api)
    result = await preview(user, name="lab1", shared_memory="128m")
    assert (result["problems"], result["starts_now"], result["is_complete"]) == ([], True, True)
    assert result["estimate"]["certainty"] == "known"
    session = result["session"]
    assert (session["image"], session["requested"]) == ("local/session:latest", QUARTER)
    assert (session["resource_group"], session["shared_memory"]) == ("default", "128m")
    cpu = next(cap for cap in result["caps"] if cap["slot"] == "cpu")
    assert (cpu["scope"], cpu["asked"], cpu["used"], cpu["limit"]) == ("domain", "1", "0", "4")
    assert (cpu["used_percent"], cpu["total_percent"]) == (0, 25)
    assert await counts(api) == before
    # The name is still free, because the preview created no session.
    created = await user.post("/sessions", {"name": "lab1", "resources": QUARTER})
    assert created["name"] == "lab1"


async def test_preview_lists_the_limits_that_a_session_would_exceed(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "first", "resources": {"cpu": "1", "mem": "6950m"}})
    await wait_for_status(user, "first", "SCHEDULED")
    await (await api.client("admin")).patch(
        "/domains/default", {"total_resource_slots": {"cpu": "2", "mem": "7g"}}
    )
    # 7206 of 7168 MiB is rounded down to 100 %.
    result = await preview(user, resources={"cpu": "1", "mem": "256m"}, shared_memory="16m")
    assert result["problems"] == []
    caps = {cap["slot"]: cap for cap in result["caps"] if cap["scope"] == "domain"}
    found = {slot: (cap["total_percent"], cap["is_exceeded"]) for slot, cap in caps.items()}
    assert found == {"cpu": (100, False), "mem": (100, True)}


async def test_preview_of_a_pending_session_equals_its_later_explanation(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "first", "resources": {"cpu": "5", "mem": "1g"}})
    await wait_for_status(user, "first", "SCHEDULED")
    request = {"name": "second", "resources": {"cpu": "5", "mem": "1g"}}
    result = await preview(user, **request)
    assert not result["starts_now"]
    await user.post("/sessions", request)
    why = await user.get("/sessions/second/why")
    for key in ("position", "ahead", "checks", "sooner", "estimate", "is_complete"):
        assert without_ids(result[key]) == without_ids(why[key]), key


async def test_preview_reports_all_problems_with_their_fields(
    agent: FakeAgent, user: Client
) -> None:
    result = await preview(user, name="bad name!", mounts=[{"vfolder": "none"}], environ={"1x": ""})
    fields = {each["field"] for each in result["problems"]}
    assert fields == {"name", "mounts.0.vfolder", "environ.1x"}
    assert (result["session"], result["starts_now"]) == (None, False)


@pytest.mark.parametrize(
    ("request_body", "field", "text"),
    [
        ({"resources": {"cpu": "999", "mem": "1g"}}, "resources.cpu", "999"),
        (
            {"resources": {"cpu": "1", "mem": "1g", "cuda.device": "99"}},
            "resources.cuda.device",
            "99",
        ),
        ({"image": "none:1"}, "image", "none:1"),
        ({"dependencies": ["none"]}, "dependencies", "none"),
    ],
)
async def test_preview_names_the_field_of_a_problem(
    agent: FakeAgent, user: Client, request_body: dict[str, Any], field: str, text: str
) -> None:
    result = await preview(user, **request_body)
    assert [each["field"] for each in result["problems"]] == [field]
    assert text in result["problems"][0]["problem"]


async def test_preview_detects_a_live_session_with_the_same_name(
    agent: FakeAgent, user: Client
) -> None:
    created = await user.post("/sessions", {"name": "lab1", "resources": QUARTER})
    same = await preview(user, name="lab1")
    assert (same["existing_session"], same["problems"]) == (created["id"], [])
    other = await preview(user, name="lab1", resources={"cpu": "2", "mem": "1g"})
    assert [each["field"] for each in other["problems"]] == ["name"]


async def test_preview_applies_a_template(agent: FakeAgent, user: Client) -> None:
    await user.post("/session-templates", {"name": "small", "request": {"resources": QUARTER}})
    result = await user.post("/sessions/preview", {"template": "small"})
    assert result["session"]["requested"] == QUARTER


async def test_monitor_may_not_preview_sessions(api: Api, agent: FakeAgent) -> None:
    monitor = await api.client("monitor")
    with pytest.raises(errors.Forbidden):
        await preview(monitor)
