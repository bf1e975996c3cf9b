"""Suspend and resume sessions over REST; a fake agent and the Hub's credential send the reports."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from bai_services.core.sessions.lifecycle import Event
from bai_services.db.sessions import suspensions as suspension_store
from tests.api.sessions.test_sessions import (
    bring_to_running,
    create_running_session,
    wait_for_status,
)
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

REPORT = {
    "saved_documents": ["a.ipynb"],
    "unsaved_documents": ["b.txt (read-only)"],
    "saved_variables": ["a.ipynb: x"],
    "unsaved_variables": [],
    "pages": 1,
    "has_hook": True,
    "hook_exit_code": 0,
    "hook_message": "saved",
}


def server_of(api: Api) -> Client:
    """Return the Hub's client, which acts for a session's server."""
    return api.hub


async def suspended(api: Api, agent: FakeAgent, name: str, **body: Any) -> dict[str, Any]:
    """Create a session and suspend it; its server reports the saved notebooks at once."""
    user = await api.client("user")
    session = await create_running_session(api, agent, name)
    await user.post(f"/sessions/{name}/suspend", {"seconds": 60, **body})
    await server_of(api).post(f"/sessions/{session['id']}/stop-notice", REPORT)
    await wait_for_status(user, session["id"], "TERMINATING")
    await api.hub.post(
        f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "x", "log": "the log"}
    )
    return dict(await user.get(f"/sessions/{session['id']}"))


def kept(session: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Return the entry of a heartbeat for a kernel whose processes have ended."""
    ids = {"kernel_id": session["kernel_id"], "session_id": session["id"]}
    return {**ids, "is_running": False, **facts}


async def test_session_is_saved_suspended_and_comes_back(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "pause")
    notice = asyncio.create_task(
        server_of(api).get(f"/sessions/{session['id']}/stop-notice", timeout="60")
    )
    answer = await user.post("/sessions/pause/suspend", {"seconds": 90})
    assert answer["status"] == "RUNNING"
    assert answer["status_info"].startswith("suspended by user; it stops at ")
    shown = (await notice)["notice"]
    assert (shown["purpose"], shown["requested_by"]) == ("suspend", "user")
    assert 0 < shown["seconds_left"] <= 90
    with pytest.raises(errors.Conflict):
        await user.post("/sessions/pause/suspend", {})
    await server_of(api).post(f"/sessions/{session['id']}/stop-notice", REPORT)
    await wait_for_status(user, session["id"], "TERMINATING")
    end = {"exit_code": 0, "reason": "x", "log": "the log"}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    held = await user.get("/sessions/pause")
    assert held["status"] == "SUSPENDED"
    assert held["status_info"].startswith("suspended by user; its home is deleted on ")
    assert (await user.get("/sessions/pause/suspension"))["report"] == REPORT
    shown_log = (await user.get("/sessions/pause/logs"))["log"]
    assert re.match(
        "the log\n----- attempt 1 ended at .*: suspended by user; .* -----\n", shown_log
    )
    # The name of a suspended session is taken.
    with pytest.raises(errors.AlreadyExists):
        await user.post("/sessions", {"name": "pause", "resources": {"cpu": "2", "mem": "1g"}})
    # A late report of the first run changes nothing.
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "x"})
    assert (await user.get("/sessions/pause"))["status"] == "SUSPENDED"
    await user.post("/sessions/pause/resume")
    again = await bring_to_running(api, agent, session["id"])
    same = ("id", "name", "url", "hub_server", "image", "kernel_id")
    assert {name: again[name] for name in same} == {name: session[name] for name in same}
    assert (await user.get("/sessions/pause/suspension"))["phase"] == "resumed"
    events = [step["event"] for step in (await user.get("/sessions/pause/history"))["items"]]
    assert events[-7:] == [
        *("suspend-requested", "suspended", "resumed"),
        *("placed", "dispatched", "prepared", "started"),
    ]


async def test_session_that_does_not_answer_stops_at_the_deadline(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "silent")
    await user.post("/sessions/silent/suspend", {"seconds": 30})
    api.world.clock.advance(seconds=29)
    await api.world.manager.sessions.suspensions.step()
    assert (await user.get("/sessions/silent"))["status"] == "RUNNING"
    api.world.clock.advance(seconds=1)
    await wait_for_status(user, session["id"], "TERMINATING")
    with pytest.raises(errors.Conflict):
        await server_of(api).post(f"/sessions/{session['id']}/stop-notice", REPORT)


async def test_agent_keeps_the_home_of_a_suspended_session(api: Api, agent: FakeAgent) -> None:
    session = await suspended(api, agent, "kept")
    folder = kept(session)
    await agent.beat([folder])
    assert await agent.work() == []
    api.world.clock.advance(seconds=25)
    await agent.beat([folder])
    (item,) = await agent.work()
    assert (item["kind"], item["kernel_id"]) == ("stop", session["kernel_id"])
    await agent.report(item)
    for _ in range(2):
        await agent.beat([{**folder, "is_kept": True}])
        assert await agent.work() == []
        api.world.clock.advance(seconds=25)
    # When the session ends, its home is removed.
    user = await api.client("user")
    await user.delete("/sessions/kept")
    assert (await user.get(f"/sessions/{session['id']}"))["status"] == "TERMINATED"
    await agent.beat([{**folder, "is_kept": True}])
    api.world.clock.advance(seconds=25)
    await agent.beat([{**folder, "is_kept": True}])
    assert [item["kind"] for item in await agent.work()] == ["remove"]


async def test_suspended_session_returns_only_to_the_agent_with_its_home(
    api: Api, agent: FakeAgent
) -> None:
    session = await suspended(api, agent, "homing")
    assert session["status"] == "SUSPENDED"
    other = FakeAgent(agent.client, "a2")
    await other.beat()
    await agent.beat([kept(session, is_kept=True)], slots={"cpu": "0", "mem": "1g"})
    user = await api.client("user")
    await user.post("/sessions/homing/resume")

    async def refusal() -> str:
        shown = await user.get("/sessions/homing")
        return shown["status_info"] if shown["status"] == "PENDING" and shown["reasons"] else ""

    await wait_until_async(refusal, 30, "the reason why the session waits")
    assert await other.work() == []
    await agent.beat([kept(session, is_kept=True)], slots={"cpu": "8", "mem": "16g"})
    await bring_to_running(api, agent, session["id"])


async def test_requeued_session_restarts_automatically(api: Api, agent: FakeAgent) -> None:
    session = await suspended(api, agent, "requeued", requeue=True)
    await bring_to_running(api, agent, session["id"])


async def test_stop_ends_a_session_that_is_being_suspended(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "for-good")
    await user.post("/sessions/for-good/suspend", {"seconds": 0})
    await wait_for_status(user, session["id"], "TERMINATING")
    await user.delete("/sessions/for-good")
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "x"})
    assert (await user.get(f"/sessions/{session['id']}"))["status"] == "TERMINATED"


async def test_suspension_expires(api: Api, agent: FakeAgent) -> None:
    session = await suspended(api, agent, "forgotten")
    api.world.clock.advance(days=31)
    await api.world.manager.sessions.suspensions.step()
    # Read the session as the Hub, because a user's signed request would be rejected as too old.
    ended = await api.hub.get(f"/sessions/{session['id']}")
    assert ended["status"] == "TERMINATED"
    assert ended["status_info"].startswith("suspended for more than 30d")


async def test_creation_with_the_name_of_a_suspended_session_resumes_it(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await suspended(api, agent, "again")
    answer = await user.post("/sessions", {"name": "again", "reuse": True})
    assert answer["id"] == session["id"]
    await bring_to_running(api, agent, session["id"])


async def test_batch_and_pending_sessions_cannot_be_suspended(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await create_running_session(api, agent, "command", type="batch", startup_command="true")
    with pytest.raises(errors.Conflict, match="only interactive sessions"):
        await user.post("/sessions/command/suspend", {})
    await user.post("/sessions", {"name": "waiting", "resources": {"cpu": "8", "mem": "1g"}})
    with pytest.raises(errors.Conflict, match="not RUNNING"):
        await user.post("/sessions/waiting/suspend", {})
    with pytest.raises(errors.InvalidRequest):
        await user.post("/sessions/command/suspend", {"seconds": 601})


async def test_preparation_without_a_suspension_leaves_the_session_running(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "victim")
    suspensions, clock = api.world.manager.sessions.suspensions, api.world.clock
    await suspensions.prepare(session["id"], clock(), "the scheduler")
    assert not await suspensions.prepared(session["id"])
    await server_of(api).post(f"/sessions/{session['id']}/stop-notice", REPORT)
    assert await suspensions.prepared(session["id"])
    await suspensions.step()
    assert (await user.get("/sessions/victim"))["status"] == "RUNNING"


async def test_server_that_the_hub_cannot_stop_does_not_end_a_suspension(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "deaf")
    await user.post("/sessions/deaf/suspend", {"seconds": 0})
    await wait_for_status(user, session["id"], "TERMINATING")
    # The spawner sends this request if the engine does not respond.
    await api.hub.delete(f"/sessions/{session['id']}")
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "x"})
    assert (await user.get("/sessions/deaf"))["status"] == "SUSPENDED"


@pytest.mark.parametrize("is_requeued", [True, False])
async def test_preemption_of_a_session_that_prepares_suspends_it(
    api: Api, agent: FakeAgent, user: Client, is_requeued: bool
) -> None:
    session = await create_running_session(api, agent, "both")
    await user.post("/sessions/both/suspend", {"seconds": 600})
    await api.world.manager.lifecycle.apply(
        session["id"], Event.PREEMPTED, "preempted", is_requeued_at_end=is_requeued
    )
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "x"})
    held = await user.get("/sessions/both")
    assert held["status"] == "SUSPENDED"
    assert held["status_info"].startswith("suspended by user; its home is deleted on ")
    await user.post("/sessions/both/resume")
    await bring_to_running(api, agent, session["id"])
    # The resumed session is not suspended again: a stop ends it.
    await user.delete("/sessions/both")
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "x"})
    assert (await user.get(f"/sessions/{session['id']}"))["status"] == "TERMINATED"


async def test_stop_ends_a_session_that_was_preempted_while_it_prepared(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "gone")
    await user.post("/sessions/gone/suspend", {"seconds": 600})
    await api.world.manager.lifecycle.apply(
        session["id"], Event.PREEMPTED, "preempted", is_requeued_at_end=True
    )
    await user.delete("/sessions/gone")
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "x"})
    assert (await user.get(f"/sessions/{session['id']}"))["status"] == "TERMINATED"


async def test_sessions_that_are_to_be_suspended_count_as_suspended(
    api: Api, agent: FakeAgent, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspension_store, "MAX_SUSPENDED_PER_USER", 1)
    await create_running_session(api, agent, "first")
    await create_running_session(api, agent, "second")
    await user.post("/sessions/first/suspend", {"seconds": 600})
    with pytest.raises(errors.QuotaExceeded):
        await user.post("/sessions/second/suspend", {})


async def test_session_that_has_reported_waits_for_its_next_notice(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "quiet")
    await api.world.manager.sessions.suspensions.prepare_for_preemption(session["id"], 600)
    await server_of(api).post(f"/sessions/{session['id']}/stop-notice", REPORT)
    loop = asyncio.get_running_loop()
    start = loop.time()
    # The loop of the suspensions, which runs every second, does not end the wait.
    answer = await server_of(api).get(f"/sessions/{session['id']}/stop-notice", timeout="3")
    assert answer == {"notice": None}
    assert loop.time() - start >= 3


async def test_failed_return_keeps_the_home(api: Api, agent: FakeAgent, user: Client) -> None:
    session = await suspended(api, agent, "fragile", requeue=True)
    await wait_for_status(user, session["id"], "SCHEDULED")
    (item,) = await agent.work(5)
    await agent.report(item, "failed", error={"code": "unavailable", "message": "no image"})
    held = await user.get("/sessions/fragile")
    assert (held["status"], held["status_info"]) == ("SUSPENDED", "no image")
    assert (held["allocations"], held["result"]) == ([], "undefined")
    suspension = await user.get("/sessions/fragile/suspension")
    assert (suspension["phase"], suspension["purpose"]) == ("suspended", "suspend")
    # Everything that the failed start has created is removed, except the home.
    folder = kept(session)
    await agent.beat([folder])
    api.world.clock.advance(seconds=25)
    await agent.beat([folder])
    assert [item["kind"] for item in await agent.work()] == ["stop"]
    await agent.beat([{**folder, "is_kept": True}])
    await user.post("/sessions/fragile/resume")
    await bring_to_running(api, agent, session["id"])


async def test_suspension_after_a_failed_return_expires(api: Api, agent: FakeAgent) -> None:
    session = await suspended(api, agent, "forgotten")
    user = await api.client("user")
    await user.post("/sessions/forgotten/resume")
    await wait_for_status(user, session["id"], "SCHEDULED")
    (item,) = await agent.work(5)
    await agent.report(item, "failed", error={"code": "unavailable", "message": "no image"})
    for days, status in ((29, "SUSPENDED"), (2, "TERMINATED")):
        api.world.clock.advance(days=days)
        await api.world.manager.sessions.suspensions.step()
        assert (await api.hub.get(f"/sessions/{session['id']}"))["status"] == status


async def test_session_that_waits_too_long_for_its_return_is_suspended_again(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    session = await suspended(api, agent, "late")
    await agent.beat([kept(session, is_kept=True)], slots={"cpu": "0", "mem": "1g"})
    options = {"pending_timeout": "1m"}
    await admin.patch("/resource-groups/default", {"scheduler_opts": options})
    await user.post("/sessions/late/resume")
    api.world.clock.advance(seconds=61)
    await api.world.manager.sessions.deadlines.step()
    held = await user.get("/sessions/late")
    assert held["status"] == "SUSPENDED"
    assert held["status_coded"]["code"] == "pending-timeout"


async def test_session_of_a_former_member_cannot_return(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await suspended(api, agent, "left")
    admin = await api.client("admin")
    await admin.delete("/projects/default/members/user")
    with pytest.raises(errors.Forbidden, match="no longer a member"):
        await user.post("/sessions/left/resume")
    assert (await user.get("/sessions/left"))["status"] == "SUSPENDED"
