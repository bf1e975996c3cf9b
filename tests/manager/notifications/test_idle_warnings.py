"""The last warning of an idle checker reaches the owner of the session at once."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from bai_services.client import Client
from tests.api.sessions.test_sessions import bring_to_running
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

NAME = "session-stops-now"
LIFETIME_SECONDS, WARNING_SECONDS = 300, 20


@pytest.mark.both_databases
async def test_last_warning_is_not_delayed_to_the_next_observation(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin, manager, clock = await api.client("admin"), api.world.manager, api.world.clock
    checker = {
        "name": "short",
        "type": "session-lifetime",
        "max_seconds": LIFETIME_SECONDS,
        "warnings_seconds": [WARNING_SECONDS],
    }
    await admin.post("/idle-checkers", checker)
    binding = {"checker": "short", "scope": "domain", "scope_key": "default"}
    await admin.post("/idle-checker-bindings", binding)
    session = await user.post(
        "/sessions", {"name": "my-lab", "resources": {"cpu": "1", "mem": "1g"}}
    )
    await bring_to_running(api, agent, session["id"])
    clock.advance(seconds=LIFETIME_SECONDS - WARNING_SECONDS - 10)
    await manager.notifications.outbox.step()
    assert (await user.get("/notifications", event=NAME))["items"] == []
    # Conditions are observed every 30 s; the warning begins before the next observation.
    clock.advance(seconds=10)
    warned_at = clock()
    await manager.sessions.idle_judging.step()
    await manager.notifications.outbox.step()
    (shown,) = (await user.get("/notifications", event=NAME))["items"]
    assert shown["text"].startswith("session my-lab will be stopped at ")
    (check,) = (await user.get("/sessions/my-lab"))["idle_checks"]
    ends_at = datetime.fromisoformat(check["ends_at"])
    assert ends_at >= warned_at + timedelta(seconds=WARNING_SECONDS)
    # The next full observation does not repeat it.
    clock.advance(seconds=15)
    await manager.notifications.outbox.step()
    assert len((await user.get("/notifications", event=NAME))["items"]) == 1
