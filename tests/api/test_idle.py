"""Sessions that nobody uses: what they say, when they end, and who keeps them alive."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from bai_services.core.accounts.roles import Caller
from tests.api.test_sessions import started, status_of
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"cpu": "1", "mem": "1g"}


class Voice:
    """What a session says of itself; time goes on by its hand.

    Less than a quarter of an hour: older requests are refused.
    """

    def __init__(self, api: Api, caller: Caller, session_id: str) -> None:
        self._api = api
        self._caller = caller
        self._id = session_id

    async def says(self, idle_seconds: float) -> dict[str, Any]:
        """Say how long nobody has used it, and return the answer."""
        uses = self._api.world.manager.sessions.activity
        return dict(await uses.note(self._caller, self._id, idle_seconds))

    async def status(self) -> str:
        """Return what has become of it once the manager has looked."""
        await self._api.world.manager.sessions.deadlines.step()
        owner = await self._api.client("user")
        return str((await owner.get(f"/sessions/{self._id}"))["status"])

    def wait(self, seconds: float) -> None:
        self._api.world.clock.advance(seconds=seconds)


async def idle_limit(api: Api, seconds: int) -> None:
    admin = await api.client("admin")
    await admin.patch("/keypair-policies/default", {"idle_timeout_seconds": seconds})


async def voice_of(api: Api, agent: FakeAgent, **body: Any) -> Voice:
    session = await started(api, agent, "lab1", **{"resources": SMALL, **body})
    caller = await api.world.manager.accounts.callers.in_session("user", "10.0.0.1")
    return Voice(api, caller, session["id"])


async def test_a_session_that_nobody_uses_is_ended(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await idle_limit(api, 600)
    voice = await voice_of(api, agent)
    voice.wait(100)
    # It was used ten seconds ago.
    answer = await voice.says(10)
    assert answer["next_report_seconds"] == 60
    session = await user.get("/sessions/lab1")
    began, since, ends = (
        datetime.fromisoformat(session[name])
        for name in ("started_at", "idle_since", "idle_ends_at")
    )
    assert (since - began, ends - since) == (timedelta(seconds=90), timedelta(seconds=600))
    assert session["notices"] == []
    voice.wait(570)
    assert (await voice.says(580))["next_report_seconds"] == 20
    (warning,) = (await user.get("/sessions/lab1"))["notices"]
    assert warning.startswith("idle-timeout: unused since") and "10min" in warning
    assert await voice.status() == "RUNNING"
    voice.wait(20)
    # Its time is over, and nobody knows yet whether somebody has come.
    assert await voice.status() == "RUNNING"
    await voice.says(600)
    ending = await status_of(user, "lab1", "TERMINATING")
    why = "idle-timeout: unused for 10min, the most that keypair policy default allows"
    assert ending["status_info"] == why
    last = (await user.get("/sessions/lab1/history"))["items"][-1]
    assert (last["to_status"], last["reason"]) == ("TERMINATING", why)
    # What it says on its way out changes nothing.
    assert (await voice.says(601))["idle_ends_at"] is None
    with pytest.raises(errors.Conflict, match="only a running one"):
        await user.post("/sessions/lab1/activity", {})


async def test_nobody_is_ended_by_what_a_manager_did_not_hear(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await idle_limit(api, 120)
    voice = await voice_of(api, agent)
    voice.wait(10)
    await voice.says(0)
    # It was away for long, and the session was used all the time.
    voice.wait(300)
    assert await voice.status() == "RUNNING"
    await voice.says(5)
    assert await voice.status() == "RUNNING"
    # Shortly before its time was over the manager was away again.
    voice.wait(110)
    await voice.says(115)
    voice.wait(300)
    assert await voice.status() == "RUNNING"
    # What is older than what is known already says nothing new of the last use.
    await voice.says(100)
    await voice.says(1000)
    assert await voice.status() == "RUNNING"


async def test_the_owner_keeps_a_session_alive(api: Api, agent: FakeAgent, user: Client) -> None:
    voice = await voice_of(api, agent)
    free = await user.post("/sessions/lab1/activity", {})
    assert (free["idle_ends_at"], free["next_report_seconds"]) == (None, 300)
    await idle_limit(api, 300)
    voice.wait(250)
    kept = await user.post("/sessions/lab1/activity", {})
    session = await user.get("/sessions/lab1")
    assert session["idle_ends_at"] == kept["idle_ends_at"]
    ends, began = (datetime.fromisoformat(session[n]) for n in ("idle_ends_at", "started_at"))
    assert ends - began == timedelta(seconds=550)
    # The session itself knows nothing of that.
    voice.wait(250)
    await voice.says(500)
    assert await voice.status() == "RUNNING"
    other = await api.client("user2")
    with pytest.raises(errors.NotFound):
        await other.post(f"/sessions/{session['id']}/activity", {})
    with pytest.raises(errors.InvalidRequest):
        await user.post("/sessions/lab1/activity", {"idle_seconds": -1})
    voice.wait(50)
    await voice.says(550)
    await status_of(user, "lab1", "TERMINATING")


async def test_a_limit_counts_as_it_is_now_and_0_is_none(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    voice = await voice_of(api, agent)
    voice.wait(600)
    assert (await voice.says(600))["idle_since"] is None
    assert (await user.get("/sessions/lab1"))["idle_ends_at"] is None
    assert await voice.status() == "RUNNING"
    await idle_limit(api, 700)
    await voice.says(600)
    assert await voice.status() == "RUNNING"
    await idle_limit(api, 0)
    assert (await user.get("/sessions/lab1"))["idle_ends_at"] is None
    await idle_limit(api, 300)
    await status_of(user, "lab1", "TERMINATING")


async def test_a_batch_session_is_never_idle(api: Api, agent: FakeAgent, user: Client) -> None:
    await idle_limit(api, 60)
    voice = await voice_of(api, agent, type="batch", startup_command="python train.py")
    voice.wait(600)
    await voice.says(600)
    assert await voice.status() == "RUNNING"
    assert (await user.get("/sessions/lab1"))["idle_ends_at"] is None
