"""Idle timeout: activity reports of sessions, warnings, and extension by the owner."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from bai_services.core.accounts.roles import Caller
from bai_services.core.sessions.records import IdleDeadline
from tests.api.sessions.test_sessions import create_running_session, wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"cpu": "1", "mem": "1g"}


class SessionServer:
    """Reports activity as a session's server does, and advances the clock."""

    def __init__(self, api: Api, caller: Caller, session_id: str) -> None:
        self._api = api
        self._caller = caller
        self._id = session_id

    async def report(self, idle_seconds: float) -> IdleDeadline:
        """Report the seconds since the last activity; return the manager's response."""
        activity = self._api.world.manager.sessions.activity
        return await activity.record_use(self._caller, self._id, idle_seconds)

    async def status(self) -> str:
        """Let the manager check all deadlines; then return the session's status."""
        await self._api.world.manager.sessions.deadlines.step()
        owner = await self._api.client("user")
        return str((await owner.get(f"/sessions/{self._id}"))["status"])

    def wait(self, seconds: float) -> None:
        self._api.world.clock.advance(seconds=seconds)


async def set_idle_timeout(api: Api, seconds: int) -> None:
    admin = await api.client("admin")
    await admin.patch("/keypair-policies/default", {"idle_timeout_seconds": seconds})


async def start_session(api: Api, agent: FakeAgent, **body: Any) -> SessionServer:
    session = await create_running_session(api, agent, "lab1", **{"resources": SMALL, **body})
    caller = await api.world.manager.accounts.callers.in_session("user", "10.0.0.1")
    return SessionServer(api, caller, session["id"])


async def test_idle_session_is_warned_and_stopped(api: Api, agent: FakeAgent, user: Client) -> None:
    await set_idle_timeout(api, 600)
    session_server = await start_session(api, agent)
    session_server.wait(100)
    # The last activity was 10 s ago.
    answer = await session_server.report(10)
    assert answer.next_report_seconds == 60
    session = await user.get("/sessions/lab1")
    began, since, ends = (
        datetime.fromisoformat(session[name])
        for name in ("started_at", "idle_since", "idle_ends_at")
    )
    assert (since - began, ends - since) == (timedelta(seconds=90), timedelta(seconds=600))
    assert session["notices"] == []
    session_server.wait(570)
    assert (await session_server.report(580)).next_report_seconds == 20
    (warning,) = (await user.get("/sessions/lab1"))["notices"]
    assert warning.startswith("idle timeout: unused since") and "10min" in warning
    assert await session_server.status() == "RUNNING"
    session_server.wait(20)
    # The timeout has passed, but the manager waits for a report, which could contain new activity.
    assert await session_server.status() == "RUNNING"
    await session_server.report(600)
    ending = await wait_for_status(user, "lab1", "TERMINATING")
    why = "idle timeout: at most 10min without use, the limit of keypair policy default"
    assert ending["status_info"] == why
    last = (await user.get("/sessions/lab1/history"))["items"][-1]
    assert (last["to_status"], last["reason"]) == ("TERMINATING", why)
    # Reports of a session that is being stopped have no effect.
    assert (await session_server.report(601)).idle_ends_at is None
    with pytest.raises(errors.Conflict, match="only a running session"):
        await user.post("/sessions/lab1/activity", {})


async def test_session_is_not_stopped_after_an_outage_of_the_manager(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await set_idle_timeout(api, 120)
    session_server = await start_session(api, agent)
    session_server.wait(10)
    await session_server.report(0)
    # Simulate that the manager was down for 300 s while the session was in use.
    session_server.wait(300)
    assert await session_server.status() == "RUNNING"
    await session_server.report(5)
    assert await session_server.status() == "RUNNING"
    # Simulate that the manager goes down again shortly before the timeout.
    session_server.wait(110)
    await session_server.report(115)
    session_server.wait(300)
    assert await session_server.status() == "RUNNING"
    # The second report is ignored: the manager already knows of later activity.
    await session_server.report(100)
    await session_server.report(1000)
    assert await session_server.status() == "RUNNING"


async def test_owner_extends_the_idle_timeout(api: Api, agent: FakeAgent, user: Client) -> None:
    session_server = await start_session(api, agent)
    unlimited = await user.post("/sessions/lab1/activity", {})
    assert (unlimited["idle_ends_at"], unlimited["next_report_seconds"]) == (None, 300)
    admin = await api.client("admin")
    # The request is stored, because it counts for a later timeout.
    assert (await admin.get("/audit-log", action="session.keep-alive"))["total"] == 1
    await set_idle_timeout(api, 300)
    session_server.wait(250)
    extended = await user.post("/sessions/lab1/activity", {})
    assert (await admin.get("/audit-log", action="session.keep-alive"))["total"] == 2
    session = await user.get("/sessions/lab1")
    assert session["idle_ends_at"] == extended["idle_ends_at"]
    ends, began = (datetime.fromisoformat(session[n]) for n in ("idle_ends_at", "started_at"))
    assert ends - began == timedelta(seconds=550)
    # The owner's request counts as activity, even though the session server's reports (500 s
    # idle) do not include it.
    session_server.wait(250)
    await session_server.report(500)
    assert await session_server.status() == "RUNNING"
    other = await api.client("user2")
    with pytest.raises(errors.NotFound):
        await other.post(f"/sessions/{session['id']}/activity", {})
    with pytest.raises(errors.InvalidRequest):
        await user.post("/sessions/lab1/activity", {"idle_seconds": -1})
    session_server.wait(50)
    await session_server.report(550)
    await wait_for_status(user, "lab1", "TERMINATING")


async def test_changed_idle_timeout_applies_to_running_sessions(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session_server = await start_session(api, agent)
    session_server.wait(600)
    assert (await session_server.report(600)).idle_since is None
    assert (await user.get("/sessions/lab1"))["idle_ends_at"] is None
    assert await session_server.status() == "RUNNING"
    await set_idle_timeout(api, 700)
    await session_server.report(600)
    assert await session_server.status() == "RUNNING"
    await set_idle_timeout(api, 0)
    assert (await user.get("/sessions/lab1"))["idle_ends_at"] is None
    await set_idle_timeout(api, 300)
    session_server.wait(1)
    await session_server.report(601)
    assert await session_server.status() == "RUNNING"
    session_server.wait(150)
    await session_server.report(751)
    await wait_for_status(user, "lab1", "TERMINATING")


@pytest.mark.parametrize("change", ["introduced", "reduced", "other policy"])
async def test_new_idle_timeout_stops_a_session_only_after_its_first_warning(
    api: Api, agent: FakeAgent, user: Client, change: str
) -> None:
    admin = await api.client("admin")
    await set_idle_timeout(api, 7200 if change == "reduced" else 0)
    session_server = await start_session(api, agent)
    session_server.wait(1000)
    await session_server.report(1000)
    if change == "other policy":
        await admin.post("/keypair-policies", {"name": "strict", "idle_timeout_seconds": 60})
        (keypair,) = (await admin.get("/keypairs", user="user"))["items"]
        await admin.patch(f"/keypairs/{keypair['access_key']}", {"resource_policy": "strict"})
    else:
        await set_idle_timeout(api, 60)
    # A report that was sent before the change does not count, and no end is shown.
    session_server.wait(10)
    assert await session_server.status() == "RUNNING"
    session = await user.get("/sessions/lab1")
    assert (session["idle_ends_at"], session["end_rule"], session["notices"]) == (None, None, [])
    # The last report that can be the first one after the change.
    session_server.wait(290)
    answer = await session_server.report(1300)
    left = (answer.idle_ends_at or api.world.clock()) - api.world.clock()
    assert left == timedelta(seconds=30)
    assert answer.next_report_seconds == left.total_seconds()
    assert await session_server.status() == "RUNNING"
    session_server.wait(left.total_seconds() - 30)
    await api.world.manager.notifications.outbox.step()
    events = [each["event"] for each in (await user.get("/notifications"))["items"]]
    assert [name for name in events if "stops" in name] == ["session-stops-soon"]
    # The last warning begins between two observations.
    session_server.wait(24)
    await session_server.report(1324 + left.total_seconds() - 30)
    await api.world.manager.notifications.outbox.step()
    events = [each["event"] for each in (await user.get("/notifications"))["items"]]
    assert "session-stops-now" in events
    session_server.wait(6)
    await session_server.report(1300 + left.total_seconds())
    await wait_for_status(user, "lab1", "TERMINATING")


async def test_keep_alive_before_an_idle_timeout_counts(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session_server = await start_session(api, agent)
    session_server.wait(5000)
    await user.post("/sessions/lab1/activity", {})
    session_server.wait(10)
    await set_idle_timeout(api, 3600)
    session_server.wait(1)
    await session_server.report(5011)
    session = await user.get("/sessions/lab1")
    ends, since = (datetime.fromisoformat(session[n]) for n in ("idle_ends_at", "started_at"))
    assert ends - since == timedelta(seconds=5000 + 3600)


async def test_batch_session_has_no_idle_timeout(api: Api, agent: FakeAgent, user: Client) -> None:
    await set_idle_timeout(api, 60)
    session_server = await start_session(
        api, agent, type="batch", startup_command="python train.py"
    )
    session_server.wait(600)
    await session_server.report(600)
    assert await session_server.status() == "RUNNING"
    assert (await user.get("/sessions/lab1"))["idle_ends_at"] is None
