"""Session features over REST: batch, dependencies, time limits, bulk, priority, templates."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.api.sessions.bodies import MAX_VARIABLES
from bai_services.client import Client
from bai_services.core import errors
from bai_services.db.tables.sessions import session_templates
from tests.api.sessions.test_sessions import (
    bring_to_running,
    create_running_session,
    wait_for_status,
)
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

SMALL = {"cpu": "1", "mem": "1g"}
BATCH = {"type": "batch", "startup_command": "python train.py", "resources": SMALL}

Session = dict[str, Any]


async def report_exit(api: Api, session: Session, code: int | None, **facts: Any) -> None:
    """Report the exit of a session as the spawner does."""
    end = {"exit_code": code, "reason": "exited", "log": "", **facts}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)


async def wait_for_reason(client: Client, name: str, check: str) -> Session:
    """Wait until this check is a reason why a session is pending; return the session."""

    async def session_with_reason() -> Session | None:
        session = dict(await client.get(f"/sessions/{name}"))
        assert session["status"] == "PENDING", session
        return session if any(r["check"] == check for r in session["reasons"]) else None

    return dict(await wait_until_async(session_with_reason, 10, f"{name} to wait for {check}"))


async def test_batch_session_ends_with_its_command(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "train", **BATCH, "batch_timeout": "2h"})
    assert (session["type"], session["batch_timeout"]) == ("batch", 7200)
    await agent.prepare()
    await wait_for_status(user, "train", "PREPARED")
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    plan = await api.hub.post(f"/sessions/{session['id']}/launch", where)
    assert plan["command"][-1] == "bai_labext.batch"
    assert plan["environ"]["BAI_STARTUP_COMMAND"] == "python train.py"
    await api.hub.post(f"/sessions/{session['id']}/started", {"container_id": "c1"})
    await wait_for_status(user, "train", "RUNNING")
    with pytest.raises(errors.Conflict, match="runs it only once"):
        await api.hub.post(f"/sessions/{session['id']}/launch", where)
    await report_exit(api, session, 3, log="epoch 1\n")
    ended = await wait_for_status(user, "train", "TERMINATED")
    assert (ended["result"], ended["exit_code"]) == ("failure", 3)
    assert ended["status_info"] == "the command exited with code 3"
    assert (await user.get("/sessions/train/logs"))["log"] == "epoch 1\n"


async def test_log_is_stored_if_the_agent_reports_the_exit_first(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "train", **BATCH)
    kernel = agent.running({"kernel_id": session["kernel_id"], "session_id": session["id"]})
    await agent.beat([{**kernel, "is_running": False, "exit_code": 0}])
    ending = await wait_for_status(user, "train", "TERMINATING")
    assert (ending["result"], ending["exit_code"]) == ("success", 0)
    await report_exit(api, session, 0, reason_code="stopped", log="done\n")
    ended = await wait_for_status(user, "train", "TERMINATED")
    assert (ended["result"], ended["exit_code"]) == ("success", 0)
    assert ended["status_info"] == "the command exited with code 0"
    assert (await user.get("/sessions/train/logs"))["log"] == "done\n"


async def test_agent_reports_that_the_memory_was_exceeded(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    """The reason must not depend on who reports the end first: the agent, or the Hub."""
    for name, exit_code, expected in (
        ("killed", 137, "was killed for exceeding its memory limit"),
        ("survived", 0, "the command exited with code 0"),
    ):
        session = await create_running_session(api, agent, name, **BATCH)
        kernel = agent.running({"kernel_id": session["kernel_id"], "session_id": session["id"]})
        ended = {"is_running": False, "exit_code": exit_code, "is_out_of_memory": True}
        await agent.beat([{**kernel, **ended}])
        assert (await wait_for_status(user, name, "TERMINATING"))["status_info"] == expected
        await report_exit(api, session, exit_code, reason_code="stopped")
        shown = await wait_for_status(user, name, "TERMINATED")
        assert (shown["status_info"], shown["exit_code"]) == (expected, exit_code)


# For each exit of a batch session: the spawner's report, the expected status and the result.
ENDS: dict[str, tuple[int | None, dict[str, Any], str, str]] = {
    "command exits with 0": (0, {}, "TERMINATED", "success"),
    "command is killed by a signal": (137, {}, "TERMINATED", "failure"),
    "kernel is killed at its memory limit": (
        137,
        {"reason_code": "interrupted", "reason": "was killed for more memory"},
        "TERMINATED",
        "failure",
    ),
    "server is stopped in the Hub": (0, {"reason_code": "stopped"}, "TERMINATED", "undefined"),
    "exit without exit code": (
        None,
        {"reason_code": "interrupted", "reason": "was removed by something other than the Hub"},
        "ERROR",
        "failure",
    ),
}


@pytest.mark.parametrize("end", ENDS)
async def test_reported_exit_decides_status_and_result_of_a_batch_session(
    api: Api, agent: FakeAgent, user: Client, end: str
) -> None:
    code, facts, status, result = ENDS[end]
    session = await create_running_session(api, agent, "train", **BATCH)
    await report_exit(api, session, code, **facts)
    ended = await wait_for_status(user, "train", status)
    assert (ended["result"], ended["exit_code"]) == (result, code)


async def test_stopped_batch_session_is_not_a_success(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "train", **BATCH)
    await user.delete("/sessions/train")
    await report_exit(api, session, 0, reason_code="stopped")
    ended = await wait_for_status(user, "train", "TERMINATED")
    assert (ended["result"], ended["status_info"]) == ("undefined", "stopped by user")
    assert ended["status_coded"] == {"code": "stopped-by", "values": {"name": "user"}, "parts": []}


REFUSALS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "missing command": (
        {"startup_command": None},
        errors.InvalidRequest,
        "needs a command",
    ),
    "blank command": ({"startup_command": "  "}, errors.InvalidRequest, "needs a command"),
    "command over 16384 bytes": (
        {"startup_command": "x" * 20000},
        errors.InvalidRequest,
        "16384 bytes",
    ),
    "NUL in the command": ({"startup_command": "a\0b"}, errors.InvalidRequest, "NUL"),
    "command of an interactive session": (
        {"type": "interactive"},
        errors.InvalidRequest,
        "only batch sessions",
    ),
    "starts_at in the past": (
        {"starts_at": "2020-01-01T00:00Z"},
        errors.InvalidRequest,
        "is in the past",
    ),
    "starts_at without time zone": (
        {"starts_at": "2999-01-01T00:00"},
        errors.InvalidRequest,
        "no time zone",
    ),
    "starts_at over 365 days ahead": (
        {"starts_at": "2999-01-01T00:00Z"},
        errors.InvalidRequest,
        "365 days",
    ),
    "starts_at is not a time": ({"starts_at": "soon"}, errors.InvalidRequest, "not a duration"),
    "batch_timeout 0": ({"batch_timeout": 0}, errors.InvalidRequest, "must be 1 second to"),
    "negative batch_timeout": ({"batch_timeout": "-5"}, errors.InvalidRequest, "not a duration"),
    "dependency on itself": ({"dependencies": ["train"]}, errors.InvalidRequest, "train -> train"),
    "unknown dependency": ({"dependencies": ["nope"]}, errors.NotFound, "no session 'nope'"),
    "dependency on another user's session by name": (
        {"dependencies": ["theirs"]},
        errors.NotFound,
        "the same owner",
    ),
    "dependency on a cancelled session": (
        {"dependencies": ["gone"]},
        errors.Conflict,
        "gone (CANCELLED)",
    ),
    "priority above the policy": ({"priority": 60}, errors.Forbidden, "exceeds 50"),
    "enqueue_only with max_wait_seconds": (
        {"enqueue_only": True, "max_wait_seconds": 3},
        errors.InvalidRequest,
        "mutually exclusive",
    ),
}


async def test_invalid_session_request_is_rejected(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    await admin.patch("/keypair-policies/default", {"max_priority": 50})
    theirs = await (await api.client("user2")).post("/sessions", {"name": "theirs", **BATCH})
    await user.post("/sessions", {"name": "gone", **BATCH})
    await user.delete("/sessions/gone")
    before = (await user.get("/sessions"))["total"]
    cases = {
        **REFUSALS,
        "dependency on another user's session by id": (
            {"dependencies": [theirs["id"]]},
            errors.NotFound,
            f"you have no session '{theirs['id']}' to depend on",
        ),
    }
    for case, (body, error, part) in cases.items():
        with pytest.raises(error) as caught:
            await user.post("/sessions", {"name": "train", **BATCH, **body})
        assert part in str(caught.value), case
    assert (await user.get("/sessions"))["total"] == before


async def test_dependent_session_starts_after_its_dependency_succeeds(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    first = await create_running_session(api, agent, "load", **BATCH)
    second = await user.post("/sessions", {"name": "train", **BATCH, "dependencies": ["load"]})
    assert [d["name"] for d in second["dependencies"]] == ["load"]
    waiting = await wait_for_reason(user, "train", "dependencies")
    assert "load (RUNNING)" in waiting["reasons"][0]["message"]
    await report_exit(api, first, 0)
    await wait_for_status(user, "train", "SCHEDULED")


async def test_dependents_of_a_failed_session_are_cancelled(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    first = await create_running_session(api, agent, "load", **BATCH)
    await user.post("/sessions", {"name": "train", **BATCH, "dependencies": ["load"]})
    await user.post("/sessions", {"name": "test", **BATCH, "dependencies": ["train"]})
    await user.post("/sessions", {"name": "aside", **BATCH})
    await report_exit(api, first, 1)
    train = await wait_for_status(user, "train", "CANCELLED")
    test = await wait_for_status(user, "test", "CANCELLED")
    assert train["status_info"] == (
        "DEPENDENCY_FAILED: its dependency, session load, is TERMINATED with failure"
    )
    assert test["status_info"].endswith("its dependency, session train, is CANCELLED")
    await wait_for_status(user, "aside", "SCHEDULED")
    graph = await user.get("/sessions/train/dependency-graph")
    assert {i["name"]: len(i["depends_on"]) for i in graph["items"]} == {
        "load": 0, "train": 1, "test": 1,
    }  # fmt: skip
    assert graph["is_complete"]


async def test_session_does_not_start_before_starts_at(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "later", **BATCH, "starts_at": "10min"})
    assert session["starts_at"] == (api.world.clock() + timedelta(minutes=10)).isoformat()
    await wait_for_reason(user, "later", "not-before")
    api.world.clock.advance(minutes=10)
    api.world.manager.scheduling.scheduler.wake()
    await wait_for_status(user, "later", "SCHEDULED")


async def test_pending_timeout_of_the_resource_group_cancels_sessions(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    options = {"scheduler_opts": {"pending_timeout": 600}}
    await admin.patch("/resource-groups/default", options)
    large = {**BATCH, "resources": {"cpu": "8", "mem": "1g"}}
    running = await create_running_session(api, agent, "first", **large)
    await user.post("/sessions", {"name": "waits", **large})
    await user.post("/sessions", {"name": "awaits", **large, "dependencies": ["first"]})
    await user.post("/sessions", {"name": "later", **large, "starts_at": "20min"})
    api.world.clock.advance(seconds=601)
    ended = await wait_for_status(user, "waits", "CANCELLED")
    assert ended["status_info"] == (
        "PENDING_TIMEOUT_EXCEEDED: pending for more than 10min, the maximum of resource group "
        "default"
    )
    # The pending time starts after starts_at and after the end of all dependencies.
    for name in ("awaits", "later"):
        assert (await user.get(f"/sessions/{name}"))["status"] == "PENDING"
    await report_exit(api, running, 0)
    await wait_for_status(user, "awaits", "SCHEDULED")


async def test_batch_session_that_exceeds_its_timeout_fails(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "train", **BATCH, batch_timeout=60)
    other = await create_running_session(api, agent, "other", **BATCH, batch_timeout=600)
    api.world.clock.advance(seconds=61)
    ending = await wait_for_status(user, "train", "TERMINATING")
    assert ending["status_info"] == ("BATCH_TIMEOUT_EXCEEDED: at most 1min, its batch_timeout")
    await report_exit(api, session, 143, reason_code="stopped", log="half\n")
    ended = await wait_for_status(user, "train", "TERMINATED")
    assert (ended["result"], ended["exit_code"]) == ("failure", 143)
    assert ended["status_info"].startswith("BATCH_TIMEOUT_EXCEEDED")
    assert (await user.get(f"/sessions/{other['id']}"))["status"] == "RUNNING"


async def test_policy_limits_the_session_lifetime(api: Api, agent: FakeAgent, user: Client) -> None:
    await create_running_session(api, agent, "lab1", resources=SMALL)
    admin = await api.client("admin")
    # A changed policy also applies to sessions that are already running.
    await admin.patch("/keypair-policies/default", {"max_session_lifetime_seconds": 600})
    api.world.clock.advance(seconds=599)
    await api.world.manager.sessions.deadlines.step()
    assert (await user.get("/sessions/lab1"))["status"] == "RUNNING"
    api.world.clock.advance(seconds=1)
    ending = await wait_for_status(user, "lab1", "TERMINATING")
    assert ending["status_info"].startswith("lifetime: at most 10min")


async def test_owner_extends_lifetime_within_the_policy(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await create_running_session(api, agent, "lab1", resources=SMALL)
    admin = await api.client("admin")
    asked = ("/sessions/lab1/lifetime", {"seconds": 300})
    with pytest.raises(errors.Conflict, match="not limited"):
        await user.post(*asked)
    assert (await user.get("/sessions/lab1"))["ends_at"] is None
    await admin.patch("/keypair-policies/default", {"max_session_lifetime_seconds": 600})
    with pytest.raises(
        errors.InvalidRequest, match="by 5min: keypair policy default allows no extension"
    ):
        await user.post(*asked)
    await admin.patch("/keypair-policies/default", {"max_lifetime_extension_seconds": 500})
    session = await user.post(*asked)
    assert session["lifetime"] == {"seconds": 900, "added_seconds": 300, "addable_seconds": 200}
    began, ends = (datetime.fromisoformat(session[name]) for name in ("started_at", "ends_at"))
    assert ends - began == timedelta(seconds=900)
    with pytest.raises(
        errors.InvalidRequest, match="of at most 8min 20s in total, of which 3min 20s is left"
    ):
        await user.post(*asked)
    other = await api.client("user2")
    with pytest.raises(errors.NotFound):
        await other.post(f"/sessions/{session['id']}/lifetime", {"seconds": 1})
    api.world.clock.advance(seconds=899)
    await api.world.manager.sessions.deadlines.step()
    assert (await user.get("/sessions/lab1"))["status"] == "RUNNING"
    api.world.clock.advance(seconds=1)
    ending = await wait_for_status(user, "lab1", "TERMINATING")
    assert ending["status_info"].startswith(
        "lifetime: at most 10min, the limit of keypair policy default, plus an"
    )
    with pytest.raises(errors.Conflict, match="only while it is running"):
        await user.post(*asked)


async def test_session_shows_that_its_agent_is_draining(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create_running_session(api, agent, "lab1", resources=SMALL)
    assert session["is_draining"] is False
    admin = await api.client("admin")
    await admin.patch(f"/agents/{agent.id}", {"schedulable": False})
    assert (await user.get("/sessions/lab1"))["is_draining"] is True


def chain(*names: str) -> list[dict[str, Any]]:
    """Return requests for batch sessions, each of which depends on the previous one."""
    return [
        {"name": name, **BATCH, "dependencies": list(names[max(0, i - 1) : i])}
        for i, name in enumerate(names)
    ]


@pytest.mark.both_databases
async def test_bulk_create_resolves_dependencies_by_name(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    # Send the last session of the chain first: the order in the request is irrelevant.
    body = {"sessions": chain("load", "train", "test")[::-1]}
    made = (await user.post("/bulk-sessions", body))["items"]
    assert [s["name"] for s in made] == ["test", "train", "load"]
    assert made[0]["dependencies"][0]["id"] == made[1]["id"]
    await wait_for_status(user, "load", "SCHEDULED")
    await wait_for_reason(user, "test", "dependencies")
    again = (await user.post("/bulk-sessions", body))["items"]
    assert [s["id"] for s in again] == [s["id"] for s in made]
    more = {"sessions": chain("train", "other")}
    more["sessions"][0] = {**body["sessions"][1]}
    both = (await user.post("/bulk-sessions", more))["items"]
    assert both[0]["id"] == made[1]["id"] == both[1]["dependencies"][0]["id"]


BULK_REFUSALS: dict[str, tuple[list[dict[str, Any]], type[Exception], str]] = {
    "circular dependencies": (
        [
            {"name": "job1", **BATCH, "dependencies": ["job2"]},
            {"name": "job2", **BATCH, "dependencies": ["job1"]},
        ],
        errors.InvalidRequest,
        "job1 -> job2 -> job1",
    ),
    "duplicate name": (
        [{"name": "job1", **BATCH}, {"name": "job1", **BATCH}],
        errors.InvalidRequest,
        "duplicate session names",
    ),
    "second session invalid": (
        [{"name": "job1", **BATCH}, {"name": "job2", **BATCH, "image": "nope:1"}],
        errors.NotFound,
        "session 2 (job2): there is no image",
    ),
    "over max_pending_sessions": (
        [{"name": f"job{n}", **BATCH} for n in range(4)],
        errors.QuotaExceeded,
        "may have at most 3 pending sessions",
    ),
    "empty list": ([], errors.InvalidRequest, "sessions"),
}


@pytest.mark.both_databases
async def test_bulk_create_is_atomic(api: Api, agent: FakeAgent, user: Client) -> None:
    admin = await api.client("admin")
    await admin.patch("/keypair-policies/default", {"max_pending_sessions": 3})
    for case, (sessions, error, part) in BULK_REFUSALS.items():
        with pytest.raises(error) as caught:
            await user.post("/bulk-sessions", {"sessions": sessions})
        assert part in str(caught.value), case
    assert (await user.get("/sessions"))["total"] == 0


async def test_slots_of_pending_sessions_are_limited(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    await admin.patch("/keypair-policies/default", {"max_pending_slots": {"cpu": "3"}})
    two = {**BATCH, "resources": {"cpu": "2", "mem": "1g"}, "starts_at": "1h"}
    counts = r"cpu=4 requested, but .* cpu=3 in pending sessions, of which 3 is left"
    with pytest.raises(errors.QuotaExceeded, match=counts):
        await user.post(
            "/bulk-sessions", {"sessions": [{"name": n, **two} for n in ("aaaa", "bbbb")]}
        )
    await user.post("/sessions", {"name": "aaaa", **two})
    with pytest.raises(errors.QuotaExceeded, match="cpu=3 in pending sessions"):
        await user.post("/sessions", {"name": "bbbb", **two})


async def test_request_with_reuse_returns_the_live_session(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    first = await user.post("/sessions", {"name": "lab1", "resources": SMALL})
    other = {"name": "lab1", "resources": {"cpu": "2", "mem": "2g"}}
    with pytest.raises(errors.AlreadyExists):
        await user.post("/sessions", other)
    assert (await user.post("/sessions", {**other, "reuse": True}))["id"] == first["id"]
    await user.delete("/sessions/lab1")
    await wait_for_status(user, first["id"], "CANCELLED")
    assert (await user.post("/sessions", {**other, "reuse": True}))["id"] != first["id"]


async def test_create_request_may_wait_until_the_session_is_running(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    # The first placement of a test run may JIT-compile the code, so create another session first.
    await create_running_session(api, agent, "first", resources=SMALL)
    body = {"name": "lab1", "resources": SMALL, "max_wait_seconds": 60}
    creation = asyncio.create_task(user.post("/sessions", body))

    async def created_id() -> str:
        items = (await user.get("/sessions", name="lab1"))["items"]
        return str(items[0]["id"]) if items else ""

    await bring_to_running(api, agent, await wait_until_async(created_id, 10, "the session"))
    assert (await creation)["status"] == "RUNNING"
    # If the session is not running after 0.2 s, the response has its current status.
    waited = await user.post("/sessions", {"name": "lab2", "max_wait_seconds": 0.2})
    assert waited["name"] == "lab2"
    assert waited["status"] in ("PENDING", "SCHEDULED")
    assert (await user.post("/sessions", {"name": "lab3", "enqueue_only": True}))["name"] == "lab3"


async def test_priority_of_a_pending_session_can_be_changed(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    await admin.patch("/keypair-policies/default", {"max_priority": 50})
    large = {**BATCH, "resources": {"cpu": "8", "mem": "1g"}}
    running = await create_running_session(api, agent, "first", **large)
    for name in ("one1", "two2"):
        await user.post("/sessions", {"name": name, **large})
    changed = await user.patch("/sessions/two2", {"priority": 50})
    assert changed["priority"] == 50

    async def is_next() -> bool:
        return bool((await user.get("/sessions/two2"))["queue_position"] == 1)

    await wait_until_async(is_next, 10, "two2 to be the first in the queue")
    with pytest.raises(errors.Forbidden, match="exceeds 50"):
        await user.patch("/sessions/one1", {"priority": 51})
    with pytest.raises(errors.InvalidRequest, match="between 0 and 100"):
        await admin.patch(f"/sessions/{changed['id']}", {"priority": 101})
    one = (await user.get("/sessions/one1"))["id"]
    assert (await admin.patch(f"/sessions/{one}", {"priority": 90}))["priority"] == 90
    with pytest.raises(errors.Conflict, match="RUNNING"):
        await user.patch("/sessions/first", {"priority": 20})
    await report_exit(api, running, 0)
    await wait_for_status(user, "one1", "SCHEDULED")
    assert (await user.get("/sessions/two2"))["status"] == "PENDING"


async def test_session_token_may_rename_but_not_prioritize_sessions_of_its_owner(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    spec = {**BATCH, "starts_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    made = await user.post("/sessions", {"name": "waiting", "enqueue_only": True, **spec})
    sessions = api.world.manager.sessions.sessions
    caller = await api.world.manager.accounts.callers.in_session("user", "10.0.0.1")
    with pytest.raises(errors.Forbidden, match="session.change-priority"):
        await sessions.change(caller, made["id"], {"priority": 9})
    assert (await sessions.change(caller, made["id"], {"name": "renamed"})).name == "renamed"


async def test_template_is_created_used_changed_and_deleted(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    request = {**BATCH, "environ": {"SEED": "1", "MODE": "fast"}}
    kept = await user.post("/session-templates", {"name": "train", "request": request})
    assert (kept["audience"], kept["owner"]) == ("owner", "user")
    with pytest.raises(errors.AlreadyExists):
        await user.post("/session-templates", {"name": "train", "request": request})
    spec = {"name": "run-1", "template": "train", "environ": {"SEED": "2"}}
    session = await user.post("/sessions", {**spec, "resources": {"mem": "2g"}})
    assert session["environ"] == {"SEED": "2", "MODE": "fast"}
    assert session["requested"] == {"cpu": "1", "mem": "2g"}
    assert session["startup_command"] == "python train.py"
    both = [{"name": f"run-{n}", "template": "train"} for n in (2, 3)]
    assert len((await user.post("/bulk-sessions", {"sessions": both}))["items"]) == 2
    with pytest.raises(errors.InvalidRequest, match="nope"):
        await user.post("/session-templates", {"name": "odd1", "request": {"nope": 1}})
    changed = await user.patch("/session-templates/train", {"description": "for the thesis"})
    assert changed["description"] == "for the thesis"
    await user.delete("/session-templates/train")
    with pytest.raises(errors.NotFound):
        await user.post("/sessions", {**spec, "name": "run-4"})


async def test_merged_environ_over_the_limit_is_reported_as_an_error_of_the_request(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    def variables(prefix: str) -> dict[str, str]:
        return {f"{prefix}{n}": "x" for n in range(MAX_VARIABLES // 2 + 1)}

    request = {"environ": variables("A")}
    await user.post("/session-templates", {"name": "train", "request": request})
    body = {"name": "run-1", "template": "train", "environ": variables("B")}
    with pytest.raises(errors.InvalidRequest, match="does not fit template 'train'.*environ"):
        await user.post("/sessions", body)


@pytest.mark.parametrize(
    "stale, part",
    [
        pytest.param({"gpu_count": 2}, "gpu_count", id="removed field"),
        pytest.param({"cluster_size": "many"}, "cluster_size", id="value with another type"),
        pytest.param({"resources": ["cpu"]}, "resources", id="mapping that became a list"),
    ],
)
async def test_outdated_template_is_rejected_with_the_field(
    api: Api, agent: FakeAgent, user: Client, stale: dict[str, Any], part: str
) -> None:
    kept = await user.post("/session-templates", {"name": "train", "request": BATCH})
    async with api.world.manager.database.write() as tx:
        await tx.execute(
            sa.update(session_templates)
            .where(session_templates.c.id == kept["id"])
            .values(request={**BATCH, **stale})
        )
    spec = {"name": "run-1", "template": "train"}
    for path, body in (("/sessions", spec), ("/bulk-sessions", {"sessions": [spec]})):
        with pytest.raises(errors.InvalidRequest, match=f"template 'train' .*{part}") as refused:
            await user.post(path, body)
        assert [p["field"] for p in refused.value.details["problems"]] == [part]
    assert (await user.get("/sessions"))["total"] == 0
    assert (await user.get("/session-templates/train"))["request"] == {**BATCH, **stale}
    await user.patch("/session-templates/train", {"request": BATCH})
    await user.post("/sessions", spec)


async def test_size_and_number_of_templates_are_limited(
    api: Api, agent: FakeAgent, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"environ": {"DATA": "x" * 33_000}}
    with pytest.raises(errors.InvalidRequest, match="at most 32768"):
        await user.post("/session-templates", {"name": "large", "request": large})
    monkeypatch.setattr("bai_services.db.sessions.templates.MAX_TEMPLATES", 1)
    await user.post("/session-templates", {"name": "one", "request": {}})
    with pytest.raises(errors.InvalidRequest, match="at most 32768"):
        await user.patch("/session-templates/one", {"request": large})
    with pytest.raises(errors.QuotaExceeded, match="^you can have at most 1 templates"):
        await user.post("/session-templates", {"name": "two", "request": {}})
    other = await api.client("user2")
    await other.post("/session-templates", {"name": "two", "request": {}})
    admin = await api.client("admin")
    for audience, more in (("project", {"project": "default"}), ("domain", {})):
        shared = {"request": {}, "audience": audience, **more}
        await admin.post("/session-templates", {"name": "one", **shared})
        with pytest.raises(errors.QuotaExceeded, match=f"^the {audience} can have at most 1 templ"):
            await admin.post("/session-templates", {"name": "two", **shared})


async def test_templates_are_shared_with_project_and_domain(api: Api, agent: FakeAgent) -> None:
    user, user2 = await api.client("user"), await api.client("user2")
    admin, foreign_user = await api.client("domain-admin"), await api.client("acme-user")
    spec = {"request": BATCH}
    with pytest.raises(errors.Forbidden):
        await user.post("/session-templates", {"name": "all1", **spec, "audience": "domain"})
    await admin.post("/session-templates", {"name": "all1", **spec, "audience": "domain"})
    await admin.post(
        "/session-templates", {"name": "all1", **spec, "audience": "project", "project": "default"}
    )
    await user2.post("/session-templates", {"name": "mine", **spec})
    found = (await user.get("/session-templates"))["items"]
    assert [(t["name"], t["audience"]) for t in found].count(("all1", "domain")) == 1
    assert {t["name"] for t in found} == {"all1"}
    # Among templates with the same name, the user's own template takes precedence over the
    # project's template, and the project's template over the domain's template.
    assert (await user.get("/session-templates/all1"))["audience"] == "project"
    with pytest.raises(errors.Forbidden):
        await user.delete("/session-templates/all1")
    await user.post("/session-templates", {"name": "all1", **spec})
    assert (await user.get("/session-templates/all1"))["audience"] == "owner"
    assert (await foreign_user.get("/session-templates"))["total"] == 0
    with pytest.raises(errors.InvalidRequest, match="specify the project"):
        await admin.post("/session-templates", {"name": "none", **spec, "audience": "project"})
