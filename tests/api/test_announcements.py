"""Announcements over REST: audience, period, dismissal, validation and audit log."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bai_services.core.errors import InvalidRequest
from tests.testbed.manager import Api


async def titles(api: Api, username: str) -> list[str]:
    client = await api.client(username)
    return [each["title"] for each in (await client.get("/announcements/current"))["items"]]


async def test_announcement_is_shown_to_the_audience_during_the_period(api: Api) -> None:
    admin = await api.client("admin")
    now = api.world.clock()
    for title, audience, target, starts, ends in (
        ("all", "everyone", None, 0, None),
        ("domain", "domain", "default", 0, 2),
        ("acme", "domain", "acme", 0, 2),
        ("project", "project", await api.world.project_id(), 0, 2),
        ("monitors", "role", "monitor", 0, 2),
        ("later", "everyone", None, 1, None),
    ):
        times = {"starts_at": (now + timedelta(minutes=starts)).isoformat()}
        if ends is not None:
            times["ends_at"] = (now + timedelta(minutes=ends)).isoformat()
        body = {"title": title, "text": "**bold**", "audience": audience, "target": target}
        await admin.post("/announcements", {**body, **times})
    assert set(await titles(api, "user")) == {"all", "domain", "project"}
    assert set(await titles(api, "acme-user")) == {"all", "acme"}
    assert "monitors" in await titles(api, "monitor")
    api.world.clock.advance(minutes=1)
    assert (await titles(api, "user"))[0] == "later"
    api.world.clock.advance(minutes=1)
    assert set(await titles(api, "user")) == {"all", "later"}


async def test_dismissal_is_for_one_user(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    made = await admin.post("/announcements", {"title": "all"})
    for _ in range(2):
        await user.call("PUT", f"/announcements/{made['id']}/dismissal")
    for client, count in ((user, 0), (admin, 1)):
        page = await client.get("/announcements/current", is_dismissed="false")
        assert len(page["items"]) == count
    assert (await titles(api, "user")) == ["all"]


@pytest.mark.parametrize(
    "body",
    [
        {"title": ""},
        {"title": "x" * 121},
        {"title": "a\u202eb"},
        {"title": "x", "text": "x" * 10_001},
        {"title": "x", "audience": "role", "target": "hub"},
        {"title": "x", "audience": "domain"},
        {"title": "x", "target": "default"},
        {"title": "x", "starts_at": "2026-11-26T10:00Z", "ends_at": "2026-11-26T10:00Z"},
        {"title": "x", "starts_at": "2026-11-26T10:00"},
    ],
)
async def test_invalid_announcement_is_rejected(api: Api, body: dict[str, str]) -> None:
    admin = await api.client("admin")
    with pytest.raises(InvalidRequest):
        await admin.post("/announcements", body)


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/announcements", {"title": "x"}), ("/maintenances", {"reason": "x"})],
)
async def test_period_cannot_end_in_the_past(api: Api, path: str, fields: dict[str, str]) -> None:
    admin, clock = await api.client("admin"), api.world.clock
    past = {
        "starts_at": (clock() - timedelta(hours=2)).isoformat(),
        "ends_at": (clock() - timedelta(hours=1)).isoformat(),
    }
    with pytest.raises(InvalidRequest, match="ends_at is in the past"):
        await admin.post(path, {**fields, **past})
    made = await admin.post(path, {**fields, "starts_at": past["starts_at"]})
    with pytest.raises(InvalidRequest, match="ends_at is in the past"):
        await admin.patch(f"{path}/{made['id']}", {"ends_at": past["ends_at"]})
    # End the announcement now, by the clock of the administrator.
    slow = (clock() - timedelta(minutes=4)).isoformat()
    ended = await admin.patch(f"{path}/{made['id']}", {"ends_at": slow})
    clock.advance(hours=1)
    # Other fields can still be changed after the end of the period.
    (name,) = fields
    await admin.patch(f"{path}/{made['id']}", {name: "y", "ends_at": ended["ends_at"]})


async def test_update_is_in_the_audit_log_and_dismissed_announcement_can_be_deleted(
    api: Api,
) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    made = await admin.post("/announcements", {"title": "old"})
    (entry,) = (await admin.get("/audit-log", action="announcement.create"))["items"]
    changes = entry["details"]["changes"]
    assert changes["title"] == {"before": None, "after": "old"}
    assert changes["level"] == {"before": None, "after": "info"}
    assert changes["audience"] == {"before": None, "after": "everyone"}
    await user.call("PUT", f"/announcements/{made['id']}/dismissal")
    path = f"/announcements/{made['id']}"
    changed = await admin.patch(path, {"title": "new"})
    assert (changed["title"], changed["ends_at"]) == ("new", None)
    (entry,) = (await admin.get("/audit-log", action="announcement.update"))["items"]
    assert entry["details"]["changes"] == {"title": {"before": "old", "after": "new"}}
    await admin.delete(path)
    assert await titles(api, "user") == []
