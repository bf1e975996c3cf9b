"""`bai admin idle-checker` and the idle checks of `bai session`, against a real manager."""

from __future__ import annotations

import re
from datetime import timedelta

from bai_services.core.sessions.usage_history import FINE, Sample
from bai_services.db.sessions.usage_samples import UsageSampleStore
from tests.api.sessions.test_idle_checkers import judging_of
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .test_golden import compare, normalized
from .test_sessions import bring_to_running

CREATE = (
    "admin", "idle-checker", "create", "idle-cpu", "--type", "utilization",
    "--max-seconds", 300, "--thresholds", '{"cpu_util": 5}', "--warnings-seconds", 120,
    "--warnings-seconds", 60, "--allows-exclusion",
)  # fmt: skip


async def test_checker_is_created_bound_and_unbound(bai: Bai) -> None:
    made = await bai(*CREATE, "--json")
    assert (made.code, made.stderr) == (0, "")
    assert made.document["warnings_seconds"] == [120, 60]
    bound = await bai("admin", "idle-checker", "bind", "idle-cpu", "domain", "default", "--dry-run")
    assert bound.stdout == "idle-cpu applies to the sessions of domain default as a dry run\n"
    refused = await bai(
        "admin", "idle-checker", "bind", "idle-cpu", "resource-group", "default", by="domain-admin"
    )
    assert refused.code != 0
    (binding,) = (await bai("admin", "idle-checker", "bindings", "idle-cpu", "--json")).document[
        "items"
    ]
    assert binding["is_dry_run"] is True
    changed = await bai(
        "admin", "idle-checker", "set-binding", binding["id"], "--no-dry-run", "--json"
    )
    assert changed.document["is_dry_run"] is False
    assert (await bai("admin", "idle-checker", "set-binding", binding["id"])).code == 2
    assert (await bai("admin", "idle-checker", "unbind", binding["id"])).code == 0
    empty = await bai("admin", "idle-checker", "bindings")
    assert "no bindings" in empty.stderr


async def test_idle_session_is_shown_kept_alive_and_replayed(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await bai(*CREATE)
    await bai("admin", "idle-checker", "bind", "idle-cpu", "domain", "default")
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "my-lab")
    session = (await bai("session", "info", "my-lab", "--json", by="user")).document
    clock, judging = api.world.clock, judging_of(api)
    start = FINE.start_of(clock())

    async def add_samples(first: int, last: int) -> None:
        store = UsageSampleStore(api.world.manager.database)
        times = [start + timedelta(seconds=15 * n) for n in range(first, last)]
        samples = [Sample(session["kernel_id"], at, {"cpu_cores": 0.01}) for at in times]
        await store.add(samples, FINE)

    await judging.step()
    new = " ".join((await bai("session", "info", "my-lab", by="user")).stdout.split())
    assert "not judged yet; judged in " in new
    clock.advance(seconds=240)
    await add_samples(0, 16)
    await judging.step()
    info = await bai("session", "info", "my-lab", by="user")
    assert "low utilization: CPU utilization 1% (threshold 5%)" in " ".join(info.stdout.split())
    kept = await bai("session", "keep-alive", "my-lab", by="user")
    assert kept.stdout == (
        "my-lab is kept alive: the window of idle checker idle-cpu begins again, 2 keep-alives "
        "left\n"
    )
    again = ("session", "info", "my-lab")
    assert "kept alive; judged again in " in " ".join((await bai(*again, by="user")).stdout.split())
    await judging.step()
    assert "kept alive; judged again in " in " ".join((await bai(*again, by="user")).stdout.split())
    out = await bai("session", "exclude-idle-checks", "my-lab", by="user")
    assert out.stdout == "my-lab is excluded from idle-cpu\n"
    again = await bai("session", "exclude-idle-checks", "my-lab", "--undo", by="user")
    assert again.stdout == "my-lab is judged by idle-cpu\n"
    clock.advance(seconds=210)
    await add_samples(16, 30)
    replay = await bai("admin", "idle-checker", "replay", "idle-cpu", "--period", "1h")
    assert (replay.code, replay.stderr) == (0, "")
    last = replay.stdout.splitlines()[-1]
    assert last.startswith("1 of 1 session stopped, 0 of them wrongly (used again soon after); ")
    # The session has no devices, so only core hours are printed.
    freed = re.fullmatch(r".*; ([0-9.]+) of ([0-9.]+) core hours freed", last)
    assert freed is not None and 0 < float(freed[1]) < float(freed[2])
    assert "CORE HOURS" in replay.stdout and "DEVICE HOURS" not in replay.stdout
    other = await bai(
        "admin", "idle-checker", "replay", "idle-cpu", "--threshold", "cpu_util=1", "--json"
    )
    assert other.document["stopped"] == 0
    wrong = await bai("admin", "idle-checker", "replay", "--threshold", "cpu_util")
    assert wrong.code == 2
    listed = await bai("admin", "idle-checker", "list")
    compare("idle-checker-list", normalized(listed.stdout))
    decided = await bai("admin", "idle-checker", "decisions")
    assert "no idle checker has stopped a session" in decided.stderr
    decided = await bai("admin", "idle-checker", "decisions", "idle-cpu")
    assert "idle-cpu has stopped no session in the last 30 days" in decided.stderr


async def test_extension_of_a_session_that_a_checker_limits_names_the_checker(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    create = ("admin", "idle-checker", "create", "short", "--type", "session-lifetime")
    await bai(*create, "--max-seconds", 600, "--warnings-seconds", 480, "--allows-exclusion")
    await bai("admin", "idle-checker", "bind", "short", "domain", "default")
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "my-lab")
    await judging_of(api).step()
    refused = await bai("session", "extend", "my-lab", by="user")
    assert refused.code == 1
    assert "limited by idle checker short" in refused.stderr
    assert "bai session exclude-idle-checks" in refused.stderr


async def test_rule_of_a_checker_is_shown_once(bai: Bai, api: Api, agent: FakeAgent) -> None:
    for name, seconds in (("long", 7200), ("longer", 7300)):
        create = ("admin", "idle-checker", "create", name, "--type", "session-lifetime")
        await bai(*create, "--max-seconds", seconds, "--warnings-seconds", 7100)
        await bai("admin", "idle-checker", "bind", name, "domain", "default")
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "my-lab")
    # The first step postpones the end, so that the first warning has its full time.
    await judging_of(api).step()
    api.world.clock.advance(seconds=600)
    await judging_of(api).step()
    notices = (await bai("session", "info", "my-lab", "--json", by="user")).document["notices"]
    assert len([text for text in notices if "idle checker long" in text]) == 2
    info = " ".join((await bai("session", "info", "my-lab", by="user")).stdout.split())
    assert info.count("lifetime: at most") == 2
