"""`bai session` and `bai template`: batch, bulk creation, callbacks, keep-alive, templates."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from bai_services.cli.sessions.waiting import wait_for_status
from bai_services.client import Client, Keypair
from bai_services.core.sessions.callbacks import secret_of
from bai_services.core.sessions.lifecycle import Status
from tests.api.sessions.test_idle_checkers import judging_of
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .test_sessions import bring_to_running, report_exit


async def test_wait_and_logs_of_a_failed_batch_session(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    made = await bai(
        "session", "create", "train", "--command", "exit 3", "--batch-timeout", "2h",
        "--enqueue-only", "--json", by="user",
    )  # fmt: skip
    session = made.document
    assert (session["type"], session["startup_command"]) == ("batch", "exit 3")
    await bring_to_running(api, agent, "train")
    waiting = asyncio.create_task(bai("session", "wait", "train", "--json", by="user"))
    log = "2026-05-01T12:00:00.123456789Z epoch 1\n2026-05-01T12:00:01.000000000Z loss 2\n"
    end = {"exit_code": 3, "reason": "exited", "log": log}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    ended = await waiting
    assert ended.code == 1
    assert "the command exited with code 3" in ended.error["message"]
    until = await bai("session", "wait", "train", "--until", "terminated", by="user")
    assert until.code == 0
    assert until.stdout.startswith("✓ train is TERMINATED (0 s)\n  Next  bai session logs train")
    logs = ("session", "logs", "train")
    assert (await bai(*logs, by="user")).stdout == "epoch 1\nloss 2\n"
    assert (await bai(*logs, "--times", by="user")).stdout == log
    assert (await bai(*logs, "--search", "EPOCH", by="user")).stdout == "epoch 1\n"
    assert (await bai(*logs, "--lines", "1", by="user")).stdout == "loss 2\n"
    assert (await bai(*logs, "--follow", "--times", by="user")).stdout == log
    assert (await bai(*logs, "--follow", "--lines", "1", by="user")).code == 2
    refused = await bai("session", "create", "test", "--depends-on", "train", by="user")
    assert (refused.code, "train (TERMINATED with failure)" in refused.stderr) == (1, True)
    listed = await bai("session", "ls", "--all", by="user")
    assert re.search(r"train +FAILED \(3\) ", listed.stdout)
    document = (await bai("session", "ls", "--all", "--json", by="user")).document
    assert [item["status"] for item in document["items"]] == ["TERMINATED"]
    assert "train  ● FAILED (3) " in (await bai("session", "info", "train", by="user")).stdout


async def test_wait_for_an_ended_session_succeeds_only_for_statuses_that_it_reached(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    made = await bai(
        "session", "create", "train", "--command", "true", "--batch-timeout", "2h",
        "--enqueue-only", "--json", by="user",
    )  # fmt: skip
    await bring_to_running(api, agent, "train")
    end = {"exit_code": 0, "reason": "exited", "log": ""}
    await api.hub.post(f"/sessions/{made.document['id']}/exited", end)
    codes = {}
    for until in ("running", "pending", "terminated", "cancelled", "error"):
        waited = await bai("session", "wait", "train", "--until", until, by="user")
        codes[until] = waited.code
    assert codes == {"running": 0, "pending": 0, "terminated": 0, "cancelled": 1, "error": 1}


async def test_wait_ends_at_once_if_the_session_has_passed_the_status(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await bai("session", "create", "lab1", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "lab1")
    waited = await bai(
        "session", "wait", "lab1", "--until", "prepared", "--timeout", "5", by="user"
    )
    assert (waited.code, waited.stderr) == (0, "")
    assert waited.stdout.startswith("✓ lab1 is running (0 s)")


class CountingClient(Client):
    """Counts the requests that it has sent."""

    count = 0

    async def send(self, *args: Any, **options: Any) -> httpx.Response:
        self.count += 1
        return await super().send(*args, **options)


async def test_wait_for_the_start_of_a_stopping_session_polls_for_its_end(
    api: Api, agent: FakeAgent
) -> None:
    user = await api.client("user")
    session = await user.post("/sessions", {"name": "lab1"})
    await bring_to_running(api, agent, "lab1")
    stopping = await user.delete(f"/sessions/{session['id']}")
    assert stopping["status"] == "TERMINATING"
    keys = api.world.keys["user"]
    keypair = Keypair(keys.access_key, keys.secret_key)
    client = CountingClient(api.url, keypair)
    async with client:
        waiting = asyncio.create_task(wait_for_status(client, stopping, Status.RUNNING, 60))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 1)
        assert client.count == 1
        await report_exit(api, session["id"])
        assert (await waiting)["status"] == "TERMINATED"


async def test_session_has_the_callback_url_and_bai_prints_the_secret(bai: Bai, api: Api) -> None:
    keys = api.world.keys["user"]
    url = "https://hooks.example.org/sessions"
    made = await bai("session", "create", "lab1", "--callback-url", url, "--json", by="user")
    assert made.document["callback"]["url"] == url
    secret = secret_of(keys.secret_key)
    assert (await bai("session", "callback-secret", by="user")).stdout == f"{secret}\n"
    named = await bai(
        "session", "callback-secret", "--access-key", keys.access_key, "--json", by="user"
    )
    assert named.document == {"access_key": keys.access_key, "callback_secret": secret}
    other = await bai("session", "callback-secret", "--access-key", keys.access_key, by="admin")
    assert other.code != 0
    inside = "http://169.254.169.254/latest/meta-data"
    refused = await bai("session", "create", "lab2", "--callback-url", inside, by="user")
    assert (refused.code, "the address is not public" in refused.stderr) == (2, True)


async def test_keep_alive_prints_the_end_of_the_idle_timeout(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await bai("session", "create", "lab1", "-r", "cpu=1", "-r", "mem=1g", by="user")
    early = await bai("session", "keep-alive", "lab1", by="user")
    assert (early.code, "only a running session" in early.stderr) == (1, True)
    await bring_to_running(api, agent, "lab1")
    free = await bai("session", "keep-alive", "lab1", by="user")
    assert free.stdout == "lab1 has no idle timeout\n"
    update = ("admin", "keypair-policy", "update", "default", "--idle-timeout-seconds", "600")
    assert (await bai(*update, by="admin")).code == 0
    kept = (await bai("session", "keep-alive", "lab1", "--json", by="user")).document
    told = (await bai("session", "keep-alive", "lab1", by="user")).stdout
    until = r"it stops in (9|10) min \(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\) unless it is used"
    assert re.fullmatch(rf"lab1 is kept alive: {until}\n", told)
    shown = (await bai("session", "info", "lab1", "--json", by="user")).document
    assert shown["idle_ends_at"] == kept["idle_ends_at"] is not None
    # Both commands print the same text, and each prints the time of the stop once.
    info = " ".join((await bai("session", "info", "lab1", by="user")).stdout.split())
    listed = (await bai("session", "ls", by="user")).stdout
    stop = "in 9 min: idle timeout: at most 10min without use, the limit of keypair policy default"
    assert (f"Stops {stop}" in info, info.count("in 9 min"), stop in listed) == (True, 1, True)
    # The notice of the same rule is not printed a second time.
    api.world.clock.advance(seconds=330)
    warned = (await bai("session", "info", "lab1", "--json", by="user")).document
    (notice,) = warned["notices"]
    info = " ".join((await bai("session", "info", "lab1", by="user")).stdout.split())
    assert (notice.startswith("idle timeout: "), info.count("idle timeout: ")) == (True, 1)
    every = await bai("session", "info", "lab1", "-v", by="user")
    assert "idle_ends_at" in every.stdout


async def test_keep_alive_of_a_session_that_stops_anyway_fails(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await bai("session", "create", "lab1", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "lab1")
    update = ("admin", "keypair-policy", "update", "default")
    await bai(*update, "--max-session-lifetime-seconds", "600", by="admin")
    kept = await bai("session", "keep-alive", "lab1", by="user")
    assert kept.code == 1
    assert "lab1 still stops in 9 min" in kept.stderr
    assert (
        "used or not: lifetime: at most 10min, the limit of keypair policy default" in kept.stderr
    )


async def test_extension_of_the_lifetime_says_until_when_and_how_much_is_left(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    extend = ("session", "extend", "lab1")
    await bai("session", "create", "lab1", "-r", "cpu=1", "-r", "mem=1g", by="user")
    early = await bai(*extend, by="user")
    assert (early.code, "only while it is running" in early.stderr) == (1, True)
    await bring_to_running(api, agent, "lab1")
    free = await bai(*extend, by="user")
    assert (free.code, "the lifetime of this session is not limited" in free.stderr) == (1, True)
    update = ("admin", "keypair-policy", "update", "default")
    await bai(*update, "--max-session-lifetime-seconds", "600", by="admin")
    refused = await bai(*extend, by="user")
    assert refused.code == 2
    assert "by 1h: keypair policy default allows no extension" in refused.stderr
    kept = await bai("session", "keep-alive", "lab1", by="user")
    assert (kept.code, "bai session extend" in kept.stderr) == (1, False)
    await bai(*update, "--max-lifetime-extension-seconds", "9000", by="admin")
    kept = await bai("session", "keep-alive", "lab1", by="user")
    assert kept.code == 1
    assert kept.stderr.endswith("policy default; extend it: bai session extend lab1\n")
    told = (await bai(*extend, by="user")).stdout
    until = r"it ends in 1 h (8|9|10) min \(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\)"
    assert re.fullmatch(
        rf"the lifetime of lab1 is extended: {until}; 1 h 30 min of extension left\n", told
    )
    more = (await bai(*extend, "--by", "80min", "--json", by="user")).document
    assert more["lifetime"] == {"seconds": 9000, "added_seconds": 8400, "addable_seconds": 600}
    too_much = await bai(*extend, "--by", "1h", by="user")
    assert too_much.code == 2
    assert "of at most 2h 30min in total, of which 10min is left" in too_much.stderr
    info = (await bai("session", "info", "lab1", "--json", by="user")).document
    assert info["end_rule"]["reason"] == (
        "lifetime: at most 10min, the limit of keypair policy default, plus an extension of "
        "2h 20min"
    )
    zero = await bai(*extend, "--by", "0", by="user")
    assert (zero.code, zero.stderr) == (2, "error: --by must be from 1 second to 366 days\n")
    # Without --by, the rest of the permitted extension is added, at most one hour.
    assert (await bai(*extend, by="user")).stdout.endswith("; no extension left\n")


async def test_keep_alive_writes_one_audit_entry_and_a_refused_one_none(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await bai("session", "create", "lab1", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "lab1")
    session = await (await api.client("user")).get("/sessions/lab1")
    admin = await api.client("admin")

    async def owners() -> list[str | None]:
        """Return the owner in each entry of a keep-alive."""
        found = await admin.get("/audit-log", action="session.keep-alive")
        return [entry["owner_id"] for entry in found["items"]]

    update = ("admin", "keypair-policy", "update", "default")
    await bai(*update, "--max-session-lifetime-seconds", "600", by="admin")
    assert (await bai("session", "keep-alive", "lab1", by="user")).code == 1
    assert await owners() == []
    await bai(*update, "--idle-timeout-seconds", "300", by="admin")
    checker = {
        "name": "idle-cpu", "type": "utilization", "max_seconds": 300,
        "thresholds": {"cpu_util": 5}, "max_keep_alives": 1,
    }  # fmt: skip
    await admin.post("/idle-checkers", checker)
    binding = {"checker": "idle-cpu", "scope": "domain", "scope_key": "default"}
    await admin.post("/idle-checker-bindings", binding)
    await judging_of(api).step()
    kept = await bai("session", "keep-alive", "lab1", by="user")
    both = "it stops in .* unless it is used; the window of idle checker idle-cpu begins again"
    assert re.search(both, kept.stdout), kept
    assert await owners() == [session["owner_id"]]
    # The second keep-alive restarts only the idle timeout of the policy, because the idle checker
    # permits one keep-alive.
    again = await bai("session", "keep-alive", "lab1", by="user")
    assert ("unless it is used" in again.stdout, "idle-cpu" in again.stdout) == (True, False)
    assert await owners() == [session["owner_id"]] * 2
    await bai(*update, "--idle-timeout-seconds", "0", by="admin")
    refused = await bai("session", "keep-alive", "lab1", by="user")
    assert (refused.code, "allows another keep-alive" in refused.stderr) == (1, True)
    assert await owners() == [session["owner_id"]] * 2


async def test_sessions_of_a_file_are_created_in_bulk(bai: Bai, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "- {name: load, type: batch, startup_command: 'true', starts_at: 1h}\n"
        "- {name: train, type: batch, startup_command: 'true', dependencies: [load]}\n"
    )
    created = (await bai("session", "bulk", str(jobs), "--json", by="user")).document["items"]
    assert [s["name"] for s in created] == ["load", "train"]
    graph = await bai("session", "graph", "load", by="user")
    assert graph.stdout.splitlines()[-1].split() == ["train", "PENDING", "undefined", "load"]
    await bai("session", "create", "single", by="user")
    empty = await bai("session", "graph", "single", by="user")
    assert (empty.stdout.splitlines()[-1].split()[0], "no dependencies" in empty.stderr) == (
        "single",
        True,
    )
    changed = await bai("session", "set-priority", "load", "50", by="user")
    assert changed.stdout.startswith("load has priority 50")
    jobs.write_text("name: load\n")
    assert (await bai("session", "bulk", str(jobs), by="user")).code == 2


async def test_template_is_created_replaced_used_and_deleted(bai: Bai, tmp_path: Path) -> None:
    request = tmp_path / "train.yaml"
    request.write_text("{type: batch, startup_command: python train.py, environ: {SEED: '1'}}")
    kept = await bai("template", "create", "train", str(request), by="user")
    assert kept.stdout == "template train saved; it is available to its owner\n"
    request.write_text("{type: batch, startup_command: python test.py, environ: {SEED: '1'}}")
    await bai("template", "create", "train", str(request), "--replace", by="user")
    made = await bai(
        "session", "create", "run-1", "--template", "train", "-e", "MODE=fast", "--json", by="user"
    )
    assert made.document["startup_command"] == "python test.py"
    assert made.document["environ"] == {"SEED": "1", "MODE": "fast"}
    listed = (await bai("template", "ls", "--json", by="user")).document
    assert [t["name"] for t in listed["items"]] == ["train"]
    shown = (await bai("template", "info", "train", "--json", by="user")).document
    assert shown["request"]["startup_command"] == "python test.py"
    assert (await bai("template", "rm", "train", by="user")).code == 0
    assert (await bai("template", "info", "train", by="user")).code == 4
    both = ("--project", "default", "--domain")
    assert (await bai("template", "create", "x123", str(request), *both, by="user")).code == 2


async def test_session_is_suspended_and_resumed(bai: Bai, api: Api, agent: FakeAgent) -> None:
    await bai("session", "create", "lab1", "-r", "cpu=1", "-r", "mem=1g", by="user")
    early = await bai("session", "suspend", "lab1", by="user")
    assert (early.code, "not RUNNING" in early.stderr) == (1, True)
    await bring_to_running(api, agent, "lab1")
    session = (await bai("session", "info", "lab1", "--json", by="user")).document
    saved = await bai("session", "suspend", "lab1", "--seconds", "0", by="user")
    assert saved.stdout == "lab1 is saved, and stopped within 0 s\n"
    user = await api.client("user")
    await wait_for_status(user, session, Status.TERMINATING, 60, show_progress=False)
    await report_exit(api, session["id"])
    info = await bai("session", "info", "lab1", by="user")
    assert "SUSPENDED" in info.stdout
    resumed = await bai("session", "resume", "lab1", "--json", by="user")
    assert resumed.document["id"] == session["id"]
