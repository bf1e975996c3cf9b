"""The spawner in a real Hub, with a real manager and real processes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest

from bai_services.client import Client
from bai_services.engines import processes
from tests.spawner.bare_hub import BareHub
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import MovableClock
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.e2e

SMALL = {"resources": {"cpu": "1", "mem": "512m"}}


async def newest_session(user: Client, server: str) -> dict[str, Any]:
    page = await user.get("/sessions", hub_server=server, sort="-created_at")
    found: dict[str, Any] = page["items"][0]
    return found


async def wait_for_status(user: Client, session_id: str, *statuses: str) -> dict[str, Any]:
    session: dict[str, Any] = {}

    async def has_status() -> bool:
        session.update(await user.get(f"/sessions/{session_id}"))
        return session["status"] in statuses

    try:
        await wait_until_async(has_status, 30, f"{session_id} to be {statuses}")
    except TimeoutError as error:
        raise AssertionError(f"{error}; it is {session}") from None
    return session


async def is_ready(hub: BareHub, server: str) -> bool:
    return bool((await hub.server(server)).get("ready"))


def message_of(answer: httpx.Response) -> str:
    return str(answer.json()["message"])


async def test_a_session_survives_a_hub_restart_and_stops(
    hub: BareHub, preparing: FakeAgent, user: Client
) -> None:
    assert (await hub.post_server("lab", SMALL)).status_code == 201
    session = await newest_session(user, "lab")
    assert (session["name"], session["requested"]) == ("session-lab", {"cpu": "1", "mem": "512m"})
    assert session["notices"] == ["prepared by a test"]
    session = await wait_for_status(user, session["id"], "RUNNING")
    before = {p.pid for p in processes.session_processes(session["id"])}
    assert before

    hub.kill()
    await asyncio.to_thread(hub.start)

    await wait_until_async(lambda: is_ready(hub, "lab"), 30, "the restarted Hub to list the server")
    assert {p.pid for p in processes.session_processes(session["id"])} == before
    assert (await hub.delete_server("lab")).status_code in (202, 204)
    ended = await wait_for_status(user, session["id"], "TERMINATED")
    assert ended["status_info"] == "stopped through the Hub"
    assert processes.session_processes(session["id"]) == []


async def test_the_unnamed_server_is_the_session_named_default(
    hub: BareHub, preparing: FakeAgent, user: Client, clock: MovableClock
) -> None:
    assert (await hub.post_server("", SMALL)).status_code == 201
    session = await newest_session(user, "")
    assert session["name"] == "default"
    assert session["url"] == "/user/user/"

    await hub.delete_server("")
    await wait_for_status(user, session["id"], "TERMINATED")
    # Sessions that are created at the same time are listed in the order of their random ids.
    clock.advance(seconds=1)
    assert (await hub.post_server("")).status_code == 201
    again = await newest_session(user, "")
    assert again["id"] != session["id"]
    assert again["requested"] == session["requested"]


async def test_a_late_start_request_for_a_stopped_session_starts_nothing(
    hub: BareHub, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "overtaken", **SMALL})
    await user.delete(f"/sessions/{session['id']}")
    await wait_for_status(user, session["id"], "CANCELLED")

    # Send the request that the manager would have sent before the user stopped the session.
    server = session["hub_server"]
    late = await hub.post_server(server, {"bai_session_id": session["id"]}, as_service=True)
    assert late.status_code == 409, late.text
    assert "stopped before its start" in message_of(late)
    assert (await user.get("/sessions", hub_server=server))["total"] == 1


async def test_only_the_owner_creates_a_session_through_the_hub(
    hub: BareHub, preparing: FakeAgent, user: Client
) -> None:
    """The caller that is not the owner is a service that may start servers."""
    chosen = {**SMALL, "environ": {"PYTHONPATH": "/home/work/theirs"}}
    answer = await hub.post_server("lab", chosen, as_service=True)
    assert answer.status_code == 403, answer.text
    assert "only its owner" in message_of(answer)
    assert (await user.get("/sessions"))["total"] == 0

    # The Hub must not have stored the denied options: the owner's next start would use them.
    assert not (await hub.server("lab"))["user_options"]
    assert (await hub.post_server("lab", SMALL)).status_code == 201
    session = await newest_session(user, "lab")
    await hub.delete_server("lab")
    await wait_for_status(user, session["id"], "TERMINATED")

    # The service can start a session neither from stored options nor with an ended session's id.
    for options in (None, {"bai_session_id": session["id"]}):
        answer = await hub.post_server("lab", options, as_service=True)
        assert answer.status_code == 403, answer.text
    assert (await user.get("/sessions"))["total"] == 1


async def test_a_killed_session_is_reported_to_manager_and_hub(
    hub: BareHub, preparing: FakeAgent, user: Client
) -> None:
    await hub.post_server("lab", SMALL)
    session = await newest_session(user, "lab")
    await asyncio.to_thread(processes.kill_session, session["id"])

    ended = await wait_for_status(user, session["id"], "ERROR")
    assert "killed from outside" in ended["status_info"]

    async def is_stopped() -> bool:
        return not (await hub.server("lab")).get("ready")

    await wait_until_async(is_stopped, 30, "the Hub to stop the server")


async def test_a_server_that_exits_at_start_is_reported_with_its_output(
    hub: BareHub, preparing: FakeAgent, user: Client
) -> None:
    answer = await hub.post_server("dies", SMALL)

    assert answer.status_code == 500
    assert "exit code 9" in message_of(answer)
    assert "no luck <b>" in message_of(answer)
    session = await newest_session(user, "dies")
    ended = await wait_for_status(user, session["id"], "ERROR")
    assert ended["status_info"].startswith("its server exited during the start with exit code 9")
    assert ended["exit_code"] == 9
    assert (await user.get(f"/sessions/{session['id']}/logs"))["log"] == "first\nno luck <b>\n"
    assert ended["allocations"] == []


async def test_a_failed_bootstrap_script_is_the_reason_of_the_end(
    hub: BareHub, preparing: FakeAgent, user: Client
) -> None:
    answer = await hub.post_server("unprepared", SMALL)
    assert answer.status_code == 500
    assert "a bootstrap script failed. Its last output:\nfetching\n" in message_of(answer)
    session = await newest_session(user, "unprepared")
    ended = await wait_for_status(user, session["id"], "ERROR")
    assert ended["status_info"] == (
        "the bootstrap script failed; its last output: fetching; the bootstrap script failed"
    )


async def test_a_server_that_does_not_respond_in_time_is_stopped(
    bare_hub: BareHub, preparing: FakeAgent, user: Client
) -> None:
    bare_hub.start_timeout = 7
    await bare_hub.start_with_user()

    answer = await bare_hub.post_server("silent", SMALL)

    assert answer.status_code == 500
    assert "did not respond within 7 seconds" in message_of(answer)
    session = await newest_session(user, "silent")
    await wait_for_status(user, session["id"], "ERROR")
    assert processes.session_processes(session["id"]) == []


async def test_the_manager_takes_over_a_start_that_is_pending_after_the_grace_period(
    bare_hub: BareHub, agent: FakeAgent, user: Client
) -> None:
    bare_hub.grace = 0.5
    await bare_hub.start_with_user()

    answer = await bare_hub.post_server("lab", SMALL)

    assert answer.status_code == 409
    session = await newest_session(user, "lab")
    assert f"/services/bai/sessions/{session['id']}" in message_of(answer)
    assert session["started_by"] == "manager"
    await agent.prepare()
    await wait_for_status(user, session["id"], "PREPARED")
    options = {"bai_session_id": session["id"]}
    started = await bare_hub.post_server("lab", options, as_service=True)
    assert started.status_code == 201
    await wait_for_status(user, session["id"], "RUNNING")
    assert (await newest_session(user, "lab"))["id"] == session["id"]


async def test_cancelled_start_cancels_its_session(
    hub: BareHub, agent: FakeAgent, user: Client
) -> None:
    start = asyncio.create_task(hub.post_server("lab", SMALL))

    async def is_created() -> bool:
        return bool((await user.get("/sessions", hub_server="lab"))["items"])

    await wait_until_async(is_created, 20, "the session")
    session = await newest_session(user, "lab")
    await hub.delete_server("lab")
    await start

    await wait_for_status(user, session["id"], "CANCELLED")


async def test_cancelling_a_start_with_running_processes_cancels_its_session(
    hub: BareHub, preparing: FakeAgent, user: Client
) -> None:
    # A session that is ready before the request to cancel its start is TERMINATED: try again.
    for server in ("lab1", "lab2", "lab3"):
        ended = await cancel_start_with_processes(hub, user, server)
        history = (await user.get(f"/sessions/{ended['id']}/history"))["items"]
        assert processes.session_processes(ended["id"]) == []
        if all(step["to_status"] != "RUNNING" for step in history):
            break
    assert (ended["status"], ended["status_info"]) == ("CANCELLED", "the start was cancelled")


async def cancel_start_with_processes(hub: BareHub, user: Client, server: str) -> dict[str, Any]:
    """Cancel the start of a server when its session has processes; return the ended session."""
    start = asyncio.create_task(hub.post_server(server, SMALL))

    async def process_exists() -> bool:
        page = await user.get("/sessions", hub_server=server)
        return any(processes.session_processes(item["id"]) for item in page["items"])

    await wait_until_async(process_exists, 20, "a process of the session")
    session = await newest_session(user, server)
    await hub.delete_server(server)
    await start
    return await wait_for_status(user, session["id"], "CANCELLED", "TERMINATED")


async def test_removing_a_server_cancels_its_pending_session(
    bare_hub: BareHub, agent: FakeAgent, user: Client
) -> None:
    bare_hub.grace = 0
    await bare_hub.start_with_user()
    assert (await bare_hub.post_server("lab", SMALL)).status_code == 409
    session = await newest_session(user, "lab")

    assert (await bare_hub.delete_server("lab", remove=True)).status_code == 204

    await wait_for_status(user, session["id"], "CANCELLED")


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"nonsense": 1}, 400, "unknown options: nonsense"),
    ({"owner": "user2"}, 400, "unknown options: owner"),
    ({"callback_url": "http://127.0.0.1:8091/"}, 400, "the address is not public"),
    ({"project": "nowhere"}, 404, "nowhere"),
    ({"resources": {"cpu": "9000"}}, 409, "9000"),
    ({"resources": {"cuda.shares": "0.333"}}, 400, "step"),
    ({"bai_session_id": "../options"}, 404, "no session"),
    ({"mounts": [{"vfolder": "none-such"}]}, 404, "none-such"),
]


async def test_rejected_starts_report_status_and_reason(
    hub: BareHub, agent: FakeAgent, user: Client
) -> None:
    for options, status, words in REFUSED:
        answer = await hub.post_server("lab", options)
        assert answer.status_code == status, answer.text
        assert words in message_of(answer)
    assert (await user.get("/sessions"))["items"] == []


async def test_a_server_cannot_start_the_session_of_another_server(
    hub: BareHub, preparing: FakeAgent, user: Client
) -> None:
    mine = await user.post("/sessions", {"name": "mine", **SMALL})
    await wait_for_status(user, mine["id"], "PREPARED")

    answer = await hub.post_server("other", {"bai_session_id": mine["id"]})

    assert answer.status_code == 404
    assert (await user.get(f"/sessions/{mine['id']}"))["status"] == "PREPARED"


async def test_unavailable_manager_is_reported(bare_hub: BareHub) -> None:
    # Nothing listens on port 9, the discard port.
    bare_hub.manager_url = "http://127.0.0.1:9/services/bai"
    await bare_hub.start_with_user()

    answer = await bare_hub.post_server("lab", SMALL)

    assert answer.status_code == 503
    assert re.match("The resource manager cannot be reached", message_of(answer))
