"""`bai session` against a real manager with a fake agent."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bai_services.cli import output
from bai_services.cli.sessions.info import (
    coming_stop,
    status_detail,
    status_text,
    stop_text,
)
from bai_services.cli.sessions.wait_reasons import position_and_reasons
from bai_services.cli.sessions.waiting import (
    _LiveLine,
    _PlainLines,
    interruption_message,
    live_text,
    wait_for_status,
)
from bai_services.cli.sessions.why import explanation_lines
from bai_services.client import Client, Keypair
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.spec import SessionSpec, traits_of
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.session_fields import (
    FIELD_EXAMPLES,
    SECRET,
    create_dependency,
    prepare_admin,
    request_of,
)
from tests.testbed.wait import wait_until_async

from .conftest import Bai

QUARTER = ("-r", "cpu=1", "-r", "mem=1g", "-r", "cuda.shares=0.25")


async def bring_to_running(api: Api, agent: FakeAgent, name: str) -> None:
    """Bring a pending session to RUNNING: send the requests of the agent and of the spawner."""
    user = await api.client("user")
    item = await agent.prepare()
    session = await user.get(f"/sessions/{name}", wait="PREPARED", timeout="60", timeout_seconds=70)
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{session['id']}/launch", where)
    await api.hub.post(f"/sessions/{session['id']}/started", {"container_id": "c1"})
    await agent.beat([agent.running(item)])


async def report_exit(api: Api, session_id: str, log: str = "") -> None:
    end = {"exit_code": 0, "reason": "stopped", "log": log}
    await api.hub.post(f"/sessions/{session_id}/exited", end)


async def test_session_is_created_shown_opened_and_stopped(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await bai("vfolder", "create", "data", by="user")
    creating = asyncio.create_task(
        bai(
            "session", "create", "my.lab", "--project", "default", "--image", "python", *QUARTER,
            "--mount", "data:/home/work/data:ro", "-e", "SEED=1", "--wait", "--json", by="user",
        )
    )  # fmt: skip
    await bring_to_running(api, agent, "my.lab")
    session = (await creating).document
    assert (session["name"], session["status"]) == ("my.lab", "RUNNING")
    assert session["requested"] == {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"}
    (mount,) = session["mounts"]
    assert (mount["vfolder"], mount["path"], mount["permission"]) == (
        "data",
        "/home/work/data",
        "ro",
    )
    assert session["environ"] == {"SEED": "1"}

    listed = (await bai("session", "ls", "--json", by="user")).document
    assert [item["id"] for item in listed["items"]] == [session["id"]]
    info = (await bai("session", "info", "my.lab", "--json", by="user")).document
    assert (info["id"], info["status"]) == (session["id"], "RUNNING")
    opened = await bai("session", "open", "my.lab", "--no-browser", by="user")
    assert opened.stdout == api.url.removesuffix("/services/bai") + session["url"] + "\n"

    stopping = (await bai("session", "rm", "my.lab", "--json", by="user")).document
    assert (stopping["id"], stopping["status"]) == (session["id"], "TERMINATING")
    await report_exit(api, session["id"], log="bye\x1b[0m\n")
    logs = await bai("session", "logs", "my.lab", by="user")
    # Standard output is not a terminal here, so escape sequences are removed.
    assert logs.stdout == "bye\n"
    as_json = (await bai("session", "logs", session["id"], "--json", by="user")).document
    assert as_json["log"] == "bye\x1b[0m\n"
    assert (await bai("session", "ls", "--json", by="user")).document["items"] == []
    for arguments in (["--all"], ["my.lab"], ["--status", "terminated"]):
        listed = (await bai("session", "ls", *arguments, "--json", by="user")).document
        assert [item["status"] for item in listed["items"]] == ["TERMINATED"]
    assert (await bai("session", "open", "my.lab", "--no-browser", by="user")).code == 1
    assert (await bai("session", "rm", "my.lab", by="user")).code == 4


async def test_create_is_idempotent_and_has_defaults(bai: Bai, agent: FakeAgent) -> None:
    made = (await bai("session", "create", "lab1", "--json", by="user")).document
    assert (made["project"], made["image"]) == ("default", "local/session:latest")
    again = (await bai("session", "create", "lab1", "--json", by="user")).document
    assert again["id"] == made["id"]
    other = await bai("session", "create", "lab1", "-e", "A=b", "--json", by="user")
    assert (other.code, other.error["error"]) == (1, "already-exists")


async def test_administrators_create_sessions_for_others(bai: Bai, agent: FakeAgent) -> None:
    words = ("session", "create", "for-user", "--owner", "user", "--json")
    assert (await bai(*words, by="domain-admin")).document["owner"] == "user"
    refused = await bai(*words, by="user2")
    assert (refused.code, refused.error["error"]) == (5, "forbidden")


async def test_every_field_with_a_help_text_has_an_option(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    with_help = {f.name for f in fields(SessionSpec) if traits_of(f).help}
    with_words = {name for name, example in FIELD_EXAMPLES.items() if example.words}
    # ``--owner`` has its own test, because only administrators may use it.
    assert with_help - {"owner"} | {"name"} == with_words
    # Stop the manager's loops, so that sessions remain pending and no callback URL is called.
    await api.world.manager.stop_session_loops()
    admin = await prepare_admin(api)
    await create_dependency(admin)
    # Without --reuse, the command succeeds only if each field equals that of the existing session.
    omitted = ("allow_fractional_resource_fragmentation", "reuse")
    session = await admin.post("/sessions", request_of(without=omitted))
    words = [word for n, one in FIELD_EXAMPLES.items() if n not in omitted for word in one.words]
    again = (await bai("session", "create", *words, "--json", **SECRET)).document
    assert (again["id"], again["priority"]) == (session["id"], 0)
    other = await bai("session", "create", *words, "--priority", "1", "--json", **SECRET)
    assert other.error["error"] == "already-exists"
    reused = await bai(
        "session", "create", *words, "--priority", "1", "--reuse", "--json", **SECRET
    )
    assert reused.document["id"] == session["id"]


async def test_create_without_project_fails_for_a_member_of_several_or_no_projects(
    bai: Bai, api: Api
) -> None:
    for name in ("vision", "speech"):
        await bai("admin", "project", "create", name, by="domain-admin")
        await bai("admin", "project", "members", "add", name, "user", by="domain-admin")
    await bai("admin", "project", "members", "rm", "default", "user", by="domain-admin")
    done = await bai("session", "create", "lab1", "--json", by="user")
    assert (done.code, done.error["details"]) == (2, {"projects": ["speech", "vision"]})
    await bai("admin", "project", "members", "rm", "speech", "user", by="domain-admin")
    await bai("admin", "project", "members", "rm", "vision", "user", by="domain-admin")
    done = await bai("session", "create", "lab1", by="user")
    assert (done.code, "you are not a member of any project" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["-r", "mem=900t"], 3, "insufficient-resources"),
        (["--image", "no/such:image"], 4, "not-found"),
        (["--project", "nowhere"], 4, "not-found"),
        (["--resource-group", "nowhere"], 4, "not-found"),
        (["--mount", "nothing"], 4, "not-found"),
        (["-e", "A B=c"], 2, "invalid-request"),
        (["--priority", "1000"], 2, "invalid-request"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
async def test_invalid_create_has_the_exit_code_of_its_error(
    bai: Bai, agent: FakeAgent, arguments: list[str], code: int, error: str
) -> None:
    done = await bai("session", "create", "lab1", *arguments, "--json", by="user")
    assert (done.code, done.error["error"]) == (code, error)
    assert (await bai("session", "ls", "--all", "--json", by="user")).document["total"] == 0


async def test_exceeded_cap_has_exit_code_3(bai: Bai, agent: FakeAgent) -> None:
    await bai("admin", "domain", "update", "default", "--total-resource-slots", "cuda.shares=0.1")
    done = await bai("session", "create", "lab1", *QUARTER, "--json", by="user")
    assert (done.code, done.error["error"]) == (3, "quota-exceeded")


async def test_wait_fails_if_the_session_fails(bai: Bai, api: Api, agent: FakeAgent) -> None:
    creating = asyncio.create_task(
        bai("session", "create", "lab1", *QUARTER, "--wait", "--json", by="user")
    )
    item = (await wait_for_work(agent))[0]
    error = {"code": "not-found", "message": "the image is not there"}
    await agent.report(item, "failed", error=error)
    done = await creating
    assert (done.code, done.error["details"]["session"]["status"]) == (1, "ERROR")
    assert "the image is not there" in done.error["message"]


async def test_timeout_option_waits_and_fails_when_the_timeout_expires(
    bai: Bai, agent: FakeAgent
) -> None:
    arguments = ("session", "create", "lab1", *QUARTER, "--timeout", 0.5, "--json")
    done = await bai(*arguments, by="user")
    assert (done.code, done.error["details"]["session"]["name"]) == (1, "lab1")
    assert "after 0.5 s" in done.error["message"]
    assert len((await bai("session", "ls", "--json", by="user")).document["items"]) == 1


async def test_new_session_that_has_to_wait_says_why(bai: Bai, api: Api, agent: FakeAgent) -> None:
    big = ("-r", "cpu=6", "-r", "mem=1g")
    await bai("session", "create", "big1", *big, by="user")
    made = await bai("session", "create", "big2", *big, by="user")
    reason = "needs cpu=6, at most 2 free on one agent"
    assert made.stdout.startswith("big2 is PENDING\n")
    # The list and the screen of the session have the same text.
    listed = await bai("session", "ls", "big2", by="user")
    shown = await bai("session", "info", "big2", by="user")
    for done in (made, listed, shown):
        assert reason in done.stdout
    # With this option, the command returns before the first scheduling pass.
    queued = await bai("session", "create", "big3", *big, "--enqueue-only", by="user")
    assert queued.stdout.startswith("big3 is PENDING\n  Next")


@pytest.mark.parametrize("status", ["PENDING", "TERMINATING", "RUNNING"])
def test_state_of_a_session_is_one_text(status: str) -> None:
    stops_at = (datetime.now(UTC) + timedelta(seconds=45.5)).isoformat()
    preemption = {"stops_at": stops_at, "mode": "reschedule", "reason": "preempted"}
    session = {
        "status": status,
        "resource_group": "gpu",
        "reasons": [],
        "status_info": "preempted",
        "preemption": preemption,
        "end_rule": None,
    }
    running = "stops in 45 s, then waits in the queue: preempted"
    assert status_detail(session) == (running if status == "RUNNING" else "preempted")


async def test_rm_stops_no_session_if_a_name_does_not_exist(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await bai("session", "create", "remains", by="user")
    done = await bai("session", "rm", "remains", "nope", by="user")
    assert done.code == 4 and "'nope'" in done.stderr
    remaining = (await bai("session", "info", "remains", "--json", by="user")).document
    assert remaining["status"] in ("PENDING", "SCHEDULED", "PREPARING")


async def test_rm_stops_no_session_if_one_has_already_ended(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await bai("session", "create", "remains", by="user")
    # No agent prepares this session, so it has not started when it is stopped. Therefore its status
    # becomes CANCELLED.
    ended = (await bai("session", "create", "ended", "--json", by="user")).document
    await bai("session", "rm", "ended", by="user")
    done = await bai("session", "rm", "remains", ended["id"], by="user")
    assert done.code == 4 and "has already ended: CANCELLED" in done.stderr
    remaining = (await bai("session", "info", "remains", "--json", by="user")).document
    assert remaining["status"] in ("PENDING", "SCHEDULED", "PREPARING")


async def test_live_line_requests_remedies_once_in_five_updates_even_if_no_remedy_exists(
    api: Api, agent: FakeAgent
) -> None:
    queries: list[str] = []

    class RecordingClient(Client):
        async def get(self, path: str, **options: Any) -> Any:
            queries.append(path)
            return await super().get(path, **options)

    keys = api.world.keys["user"]
    async with RecordingClient(api.url, Keypair(keys.access_key, keys.secret_key)) as client:
        pending = await client.post("/sessions", {"name": "big1", "resources": {"cpu": "6"}})
        line = _LiveLine(client, 80)
        for _ in range(5):
            await line.show(pending)
    assert queries == [f"/sessions/{pending['id']}/why"]


async def test_rm_waits_for_several_sessions(bai: Bai, api: Api, agent: FakeAgent) -> None:
    await bai("session", "create", "lab1", *QUARTER, by="user")
    await bring_to_running(api, agent, "lab1")
    # No agent prepares lab2. A session that is stopped before its start is CANCELLED.
    made = (await bai("session", "create", "lab2", *QUARTER, "--json", by="user")).document
    user = await api.client("user")
    first = await user.get("/sessions/lab1")
    stopping = asyncio.create_task(
        bai("session", "rm", "lab1", "lab2", "--timeout", 60, "--json", by="user")
    )
    await user.get("/sessions/lab1", wait="TERMINATING", timeout="10")
    await report_exit(api, first["id"])
    ended = (await stopping).document["items"]
    assert [(item["id"], item["status"]) for item in ended] == [
        (first["id"], "TERMINATED"),
        (made["id"], "CANCELLED"),
    ]


async def test_session_of_another_user_is_not_found(bai: Bai, agent: FakeAgent) -> None:
    made = (await bai("session", "create", "lab1", "--json", by="user")).document
    for key in ("lab1", made["id"]):
        for command in ("info", "logs", "rm", "open"):
            done = await bai("session", command, key, "--json", by="user2")
            assert (done.code, done.error["error"]) == (4, "not-found")


async def wait_for_work(agent: FakeAgent) -> list[dict[str, object]]:
    items: list[dict[str, object]] = await wait_until_async(
        lambda: agent.work(1), 10, "work for the agent"
    )
    return items


async def test_preview_creates_no_session(bai: Bai, api: Api, agent: FakeAgent) -> None:
    await (await api.client("admin")).patch(
        "/domains/default", {"total_resource_slots": {"cpu": "8"}}
    )
    done = await bai("session", "create", "lab1", *QUARTER, "--preview", by="user")
    assert "lab1: local/session:latest, cpu=1 cuda.shares=0.25 mem=1g" in done.stdout
    assert "it would start now" in done.stdout
    assert "domain default: cpu=1 of 8 left (limit 8, used 0)" in done.stdout
    assert (await bai("session", "ls", "--json", by="user")).document["total"] == 0

    big = ("-r", "cpu=999", "-r", "mem=1g")
    done = await bai("session", "create", "a b", *big, "--preview", by="user")
    assert done.code == 2
    assert "name: " in done.stderr
    assert "resources.cpu: " in done.stderr


def test_wait_prints_a_note_if_a_quota_blocks_the_session(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reason = {"check": "policy", "passed": False, "message": "1 session allowed"}
    session = {
        "name": "lab1",
        "status": "PENDING",
        "resource_group": "default",
        "queue_position": 1,
        "reasons": [reason],
    }
    note = "blocked by a quota: starts after the quota is raised or sessions that use it end"
    assert note in live_text(session, 1, [], 80).plain
    others = {**session, "reasons": [{**reason, "check": "resources"}]}
    assert note not in live_text(others, 1, [], 80).plain

    async def show() -> None:
        lines = _PlainLines()
        for _ in range(3):
            await lines.show(session)

    asyncio.run(show())
    assert capsys.readouterr().err.splitlines() == [
        "session lab1 is pending: position 1 in resource group default (all users) · "
        "1 session allowed",
        note,
    ]


async def test_a_name_that_is_not_found_gets_a_suggestion(bai: Bai, agent: FakeAgent) -> None:
    await bai("session", "create", "gpu-wait", by="user")
    for command in ("info", "why", "rm", "wait"):
        done = await bai("session", command, "gpu-wai", by="user")
        assert (done.code, done.stderr.count("Did you mean 'gpu-wait'?")) == (4, 1)
    # The name of another user's session is not suggested.
    done = await bai("session", "info", "gpu-wai", by="user2")
    assert (done.code, "Did you mean" in done.stderr) == (4, False)


async def test_message_for_an_empty_list_depends_on_filters(bai: Bai, agent: FakeAgent) -> None:
    done = await bai("session", "ls", "--status", "error", by="user")
    assert done.stderr == "no session matches the filters\n"
    done = await bai("session", "ls", by="user")
    assert done.stderr.startswith("no sessions; create one: bai session create NAME --wait")


def test_times_of_an_explanation_are_relative_and_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    begin = datetime.now(UTC) + timedelta(hours=2, minutes=5, seconds=30)
    check = {"check": "not-before", "passed": False}
    response = {
        "checks": [{**check, "message": "does not start before 2030-01-31T09:00:00.123456+00:00"}],
        "estimate": {"starts_at": begin.isoformat(), "certainty": "other"},
        "sooner": [],
        "overflow": [
            {"resource_group": "near", "after_seconds": 300, "moves_at": None},
            {"resource_group": "cloud", "after_seconds": 600, "moves_at": begin.isoformat()},
        ],
    }
    local = begin.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert explanation_lines(response) == [
        "  FAIL  not-before: does not start before 2030-01-31 18:00:00",
        f"estimated start: in 2 h 5 min, {local} (other)",
        "moves to one of these resource groups as soon as it can start there:",
        "  - near: after a wait of 5 min",
        f"  - cloud: from {local}",
    ]


def test_exit_code_of_a_stopped_session_does_not_look_like_a_success() -> None:
    session = {"status": "TERMINATED", "type": "batch", "result": "failure", "exit_code": 0}
    assert status_text(session) == "FAILED"
    assert status_text({**session, "exit_code": 143}) == "FAILED (143)"


def test_interactive_session_that_a_rule_stops_has_not_failed() -> None:
    session = {"status": "TERMINATED", "type": "interactive", "result": "failure", "exit_code": 0}
    assert status_text(session) == "TERMINATED"


@pytest.mark.parametrize(("seconds", "shown"), [(45.5, "in 45 s: idle"), (7200, "")])
def test_list_shows_the_stops_of_the_next_half_hour(seconds: float, shown: str) -> None:
    ends_at = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    rule = {"ends_at": ends_at, "reason": "idle"}
    session = {"status": "RUNNING", "preemption": None, "end_rule": rule}
    assert coming_stop(session) == shown


def test_announced_stop_has_its_time_and_reason() -> None:
    stops_at = datetime.now(UTC) + timedelta(seconds=45.5)
    preemption = {"stops_at": stops_at.isoformat(), "mode": "reschedule", "reason": "preempted"}
    assert stop_text({"preemption": preemption}) == "in 45 s, then waits in the queue: preempted"
    assert stop_text({"preemption": None}) == ""


def test_times_in_messages_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    message = "will be stopped at 2030-01-31T09:00:00+00:00"
    command = "run --since 2030-01-31T09:00:00+00:00"
    reason = {"check": "not-before", "passed": False, "message": message}
    session = {"status": "PENDING", "resource_group": "gpu", "reasons": [reason]}
    assert position_and_reasons(session)[1:] == ["will be stopped at 2030-01-31 18:00:00"]
    assert output.field_text("last_reason", message) == "will be stopped at 2030-01-31 18:00:00"
    assert output.field_text("text", message) == "will be stopped at 2030-01-31 18:00:00"
    assert output.field_text("startup_command", command) == command


async def test_why_explains_a_pending_session(bai: Bai, api: Api, agent: FakeAgent) -> None:
    for name in ("big1", "big2"):
        await bai("session", "create", name, "-r", "cpu=6", "-r", "mem=1g", by="user")

    async def explanation() -> str | None:
        done = await bai("session", "why", "big2", by="user")
        return done.stdout if "sooner:" in done.stdout else None

    output = await wait_until_async(explanation, 10, "suggestions for big2")
    assert all(len(line) <= 80 for line in output.splitlines())
    text = re.sub(r"\n {4,}", " ", output)  # undo the wrapping
    assert "big2: position 1 in resource group default (all users), priority 10" in text
    assert "  ok    resource-group: resource group default is active" in text
    assert "  FAIL  resources: resource group default: cpu=6 requested, but at most 2" in text
    assert "  - it would start now with cpu=2" in text
    document = (await bai("session", "why", "big2", "--json", by="user")).document
    assert (document["position"], document["is_complete"]) == (1, True)
    running = await bai("session", "why", "big1", by="user")
    assert "session big1 is not pending" in running.stdout


async def test_interrupted_wait_prints_that_the_session_remains_pending(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    user = await api.client("user")
    session = await user.post("/sessions", {"name": "lab1"})
    waiting = asyncio.create_task(wait_for_status(user, session, Status.RUNNING, None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    message = "session lab1 remains pending; stop it with: bai session rm lab1\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    "status, awaited, part",
    [
        ("PREPARING", Status.RUNNING, "is PREPARING and continues to start; stop it with"),
        ("RUNNING", Status.TERMINATED, "is still RUNNING; stop it with"),
        ("TERMINATING", Status.TERMINATED, "is still stopping; check it with: bai session info"),
    ],
)
def test_interruption_message_depends_on_the_status(
    status: str, awaited: Status, part: str
) -> None:
    assert part in interruption_message({"name": "lab1", "status": status}, awaited)


async def test_exec_accepts_a_double_dash_before_the_command(bai: Bai, agent: FakeAgent) -> None:
    assert (await bai("session", "create", "lab1", by="user")).code == 0
    done = await bai("session", "exec", "lab1", "--", "--json", by="user")
    assert "the command is missing" not in done.stderr
    done = await bai("session", "exec", "lab1", "--", by="user")
    message = "the command is missing: bai session exec NAME -- COMMAND"
    assert (done.code, message in done.stderr) == (2, True)


async def test_error_for_an_invalid_name_suggests_a_valid_one(bai: Bai, api: Api) -> None:
    done = await bai("session", "create", "bad name!", "--json", by="user")
    assert (done.code, done.error["details"]["suggestion"]) == (2, "bad-name")


async def test_secret_env_reads_the_environment_of_the_cli_process(
    bai: Bai, agent: FakeAgent
) -> None:
    create = ("session", "create", "hidden", "--secret-env", "HF_KEY", "--enqueue-only")
    done = await bai(*create, "-e", "SEED=1", "--json", by="user", HF_KEY="s3cret-value")
    session = done.document
    assert session["environ"] == {"SEED": "1", "HF_KEY": "********"}
    assert session["secret_environ"] == ["HF_KEY"]
    assert "s3cret-value" not in done.stdout

    missing = await bai(*create, by="user")
    assert missing.code == 2
    assert "environment variable HF_KEY is not set" in missing.stderr
    duplicate = await bai(*create, "-e", "HF_KEY=1", by="user", HF_KEY="s3cret-value")
    assert duplicate.code == 2
    assert "s3cret-value" not in duplicate.stderr


async def test_create_with_empty_name_is_rejected(bai: Bai, api: Api) -> None:
    done = await bai("session", "create", "", "--json", by="user")
    assert (done.code, "the name of a session cannot be empty" in done.error["message"]) == (
        2,
        True,
    )
    user = await api.client("user")
    assert (await user.post("/sessions", {}))["name"].startswith("session-")


async def test_wait_without_a_terminal_prints_the_reason_once(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    for name in ("big1", "big2"):
        await bai("session", "create", name, "-r", "cpu=6", "-r", "mem=1g", by="user")
    wait = ("session", "wait", "big2", "--timeout", "2")
    done = await bai(*wait, by="user")
    assert done.code == 1
    lines = [line for line in done.stderr.splitlines() if "session big2 is pending: " in line]
    assert len(lines) == 1
    assert "needs cpu=6, at most 2 free on one agent" in lines[0]
    assert "is pending" not in (await bai(*wait, "--json", by="user")).stderr


async def test_empty_log_is_explained(bai: Bai) -> None:
    await bai("session", "create", "quiet", "-r", "cpu=1", "-r", "mem=1g", by="user")
    empty = await bai("session", "logs", "quiet", by="user")
    assert (empty.code, empty.stdout, empty.stderr.strip()) == (0, "", "no output yet")
    unmatched = await bai("session", "logs", "quiet", "--search", "error", by="user")
    assert unmatched.stderr.strip() == "no line contains the text"
