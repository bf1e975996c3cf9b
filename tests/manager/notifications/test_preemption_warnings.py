"""The warning before a preemption reaches the owner by mail, webhook and Slack."""

from __future__ import annotations

import json

import pytest

from bai_services.client import Client
from tests.api.sessions.test_sessions import bring_to_running
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.mail_server import MailServerThread
from tests.testbed.manager import Api
from tests.testbed.receiver import Receiver
from tests.testbed.wait import wait_until_async

from .conftest import ORIGIN

ALL_CPU = {"cpu": "8", "mem": "1g"}
NAME, ADDRESS = "session-stops-now", "user@example.com"


@pytest.mark.parametrize(
    ("mode", "stop"),
    [
        pytest.param("reschedule", "and returns to the queue: ", id="returns to the queue"),
        pytest.param("terminate", ": ", id="ends"),
    ],
)
async def test_preemption_is_announced_to_the_owner_of_the_victim(
    api: Api,
    agent: FakeAgent,
    user: Client,
    mail_server: MailServerThread,
    receiver: Receiver,
    mode: str,
    stop: str,
) -> None:
    admin, notifications = await api.client("admin"), api.world.manager.notifications
    options = {"preemption": {"enabled": True, "grace": "1m", "mode": mode}}
    await admin.patch("/resource-groups/default", {"scheduler_opts": options})
    channels = {NAME: ["web", "mail", "webhook", "slack"]}
    await user.patch("/notification-settings", {"channels": channels})
    for kind in ("json", "slack"):
        await user.post("/webhooks", {"url": receiver.url, "kind": kind})
    low = await user.post("/sessions", {"name": "low1", "resources": ALL_CPU, "priority": 1})
    await bring_to_running(api, agent, low["id"])
    await notifications.outbox.step()
    await user.post("/sessions", {"name": "high", "resources": ALL_CPU, "priority": 50})
    await api.world.manager.scheduling.scheduler.run_pass()
    assert [plan["session"] for plan in (await admin.get("/preemptions"))["items"]] == ["high"]

    for _ in range(2):  # the preemption is announced only once
        await notifications.outbox.step()
        await notifications.deliveries.step()
        await notifications.deliveries.drain()
    # The loop of the mail queue delivers the mail.
    await wait_until_async(lambda: mail_server.to(ADDRESS), 30, "the mail")

    (mail,) = mail_server.to(ADDRESS)
    assert mail.subject == "bai-hub: Session is about to be stopped"
    assert "session low1 will be stopped at " in mail.text
    assert f"{stop}preempted: a session with a priority above 1 needs" in mail.text
    assert f"{ORIGIN}/services/bai/sessions/{low['id']}" in mail.text
    bodies = [json.loads(call.body) for call in receiver.calls]
    (text,) = (body["text"] for body in bodies if body.keys() == {"text"})
    assert text.startswith("*Session is about to be stopped*\nsession low1 will be stopped at ")
    (event,) = (body for body in bodies if "event" in body)
    assert (event["event"], event["user"]) == (NAME, "user")
    (shown,) = (await user.get("/notifications", event=NAME))["items"]
    assert shown["text"].startswith("session low1 will be stopped at ")
