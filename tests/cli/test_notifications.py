"""`bai notification`: settings, notifications and webhooks."""

from __future__ import annotations

from tests.testbed.manager import Api

from .conftest import Bai


async def test_notification_is_listed_and_marked_as_read(bai: Bai, api: Api) -> None:
    await bai("admin", "announcement", "create", "--title", "New GPUs")
    await api.world.manager.notifications.outbox.step()
    shown = await bai("notification", "ls", "--json", by="user")
    (item,) = shown.document["items"]
    assert (item["event"], item["text"], item["is_read"]) == ("announcement", "New GPUs", False)
    assert (await bai("notification", "read", item["id"], by="user")).code == 0
    assert (await bai("notification", "ls", "--unread", by="user")).stderr == "no notifications\n"
    assert (await bai("notification", "read", by="user")).code == 2


async def test_settings_are_changed(bai: Bai) -> None:
    changed = await bai(
        "notification", "set", "--time-zone", "Asia/Seoul", "--quiet", "22:00-07:00",
        "--channels", "session-failed=web,mail", "--channels", "announcement=", "--json", by="user",
    )  # fmt: skip
    settings = changed.document
    assert (settings["quiet_starts"], settings["quiet_ends"]) == ("22:00", "07:00")
    assert settings["channels"] == {"session-failed": ["web", "mail"], "announcement": []}
    events = (await bai("notification", "events", "--json", by="user")).document["items"]
    channels = {event["name"]: event["channels"] for event in events}
    assert channels["session-failed"] == ["mail", "web"] and channels["announcement"] == []
    assert "agent-lost" not in channels
    await bai("notification", "set", "--quiet", "none", by="user")
    shown = (await bai("notification", "settings", "--json", by="user")).document
    assert shown["quiet_starts"] == "" and shown["time_zone"] == "Asia/Seoul"
    failed = await bai("notification", "set", "--digest-time", "25:00", by="user")
    assert failed.code != 0 and "not a time" in failed.stderr


async def test_webhook_of_an_administrator_is_created_tested_and_removed(bai: Bai) -> None:
    url = "https://name.invalid/hook?token=hidden"
    made = await bai(
        "admin", "webhook", "create", url, "--scope", "all", "--event", "agent-lost", "--json"
    )
    assert made.document["secret"] and "hidden" not in made.stdout
    key = made.document["id"]
    assert "name.invalid" in (await bai("admin", "webhook", "ls")).stdout
    assert (await bai("notification", "webhook", "ls", by="user")).stderr == "no webhooks\n"
    failed = await bai("admin", "webhook", "test", key)
    assert failed.code == 6 and "cannot be resolved" in failed.stderr
    assert (await bai("admin", "webhook", "log", key)).stderr == "no deliveries\n"
    changed = await bai("admin", "webhook", "update", key, "--disable", "--json")
    assert not changed.document["is_enabled"]
    assert len((await bai("admin", "webhook", "secret", key)).stdout) > 30
    assert (await bai("admin", "webhook", "rm", key)).code == 0
