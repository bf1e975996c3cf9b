"""`bai service`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import sqlalchemy as sa

from bai_services.cli.serving.scaling import rule_text
from bai_services.core.serving.autoscaling import ScalingRule, rule_as_json
from bai_services.core.serving.gateway_records import ANONYMOUS
from bai_services.core.serving.scaling_replay import parse_scaling_rule
from bai_services.db.tables.sessions import kernels
from tests.api.serving.test_endpoints import end, make, ready, report_use, server, step
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .test_golden import compare, normalized


async def test_endpoint_is_created_changed_and_deleted(bai: Bai, api: Api, tmp_path: Path) -> None:
    await FakeAgent(api.agent).beat()
    made = await bai(
        "service", "create", "hello", "--variant", "cmd", "--command", "serve", "--replicas", "2",
        "-r", "cpu=1", "-r", "mem=1g", "-e", "SEED=1", "--health-path", "/ok", by="user",
    )  # fmt: skip
    assert (made.code, "/services/bai-serve/hello/" in made.stdout) == (0, True)
    assert "hello" in (await bai("service", "list", by="user")).stdout
    changed = await bai(
        "service", "update", "hello", "--command", "serve 2", "--strategy", "canary",
        "--canary-percent", "5", "--manual", "--max-queue", "7", by="user",
    )  # fmt: skip
    assert "revision 2 is being rolled out" in changed.stdout
    saved = await bai(
        "service", "update", "hello", "--command", "x", "--cluster-size", "1", "--save-only",
        by="user",
    )  # fmt: skip
    assert "the new revision is saved" in saved.stdout
    assert (await bai("service", "update", "hello", by="user")).code == 2
    shown = (await bai("service", "info", "hello", "--json", by="user")).document
    assert (shown["max_queue"], shown["target_revision"], shown["replicas"]) == (7, 2, 2)
    revisions = (await bai("service", "rollout", "hello", "--json", by="user")).document
    found = [(each["number"], each["outcome"]) for each in revisions["items"]]
    assert found == [(3, "saved"), (2, None), (1, "replaced")]
    assert revisions["items"][0]["settings"]["request"]["cluster_size"] == 1
    settings = revisions["items"][1]["settings"]
    assert (settings["rollout"]["canary_percent"], settings["health"]["path"]) == (5, "/ok")
    limits = ["--max-error-percent", "5", "--max-p99-ms", "200"]
    await bai("service", "update", "hello", *limits, by="user")
    await bai("service", "update", "hello", "--max-p99-ms", "none", by="user")
    revisions = (await bai("service", "rollout", "hello", "--json", by="user")).document
    rollout = revisions["items"][0]["settings"]["rollout"]
    assert (rollout["max_error_percent"], rollout["max_p99_ms"]) == (5, None)
    assert settings["request"] == {
        "resources": {"cpu": "1", "mem": "1g"},
        "environ": {"SEED": "1"},
    }
    assert "hello: 3" in (await bai("service", "scale", "hello", "3", by="user")).stdout
    assert (await bai("service", "rollback", "hello", "1", by="user")).code == 0
    assert (await bai("service", "promote", "hello", by="user")).code != 0
    assert "paused" in (await bai("service", "pause", "hello", by="user")).stdout
    assert "resumed" in (await bai("service", "resume", "hello", by="user")).stdout
    assert (await bai("service", "replicas", "hello", by="user")).code == 0
    usage = await bai("service", "usage", "hello", by="user")
    assert (usage.code, "no requests yet" in usage.stderr) == (0, True)
    created = await bai(
        "service", "token", "create", "hello", "app", "--network", "192.0.2.0/24",
        "--per-minute", "60", by="user",
    )  # fmt: skip
    assert "bais_" in created.stdout
    listed = await bai("service", "token", "list", "hello", by="user")
    assert ("app" in listed.stdout, "bais_" in listed.stdout) == (True, False)
    assert (await bai("service", "token", "revoke", "hello", "app", by="user")).code == 0
    definition = tmp_path / "model-definition.yaml"
    definition.write_text("models:\n- service:\n    prot: 1\n")
    wrong = await bai("service", "check", str(definition), by="user")
    assert (wrong.code, "line 3" in wrong.stderr) == (2, True)
    assert (await bai("service", "rm", "hello", by="user")).code == 0


async def test_autoscaling_rule_is_set_shown_and_changed(bai: Bai, api: Api) -> None:
    await FakeAgent(api.agent).beat()
    words = ["--variant", "cmd", "--command", "serve", "-r", "cpu=1", "-r", "mem=1g"]
    both = await bai(
        "service", "create", "chat", *words, "--replicas", "2", "--max", "3", by="user"
    )
    assert (both.code, "fixed number" in both.stderr) == (2, True)
    await bai(
        "service", "create", "chat", *words, "--min", "0", "--max", "3", "--target", "2.5",
        "--utilization", "1", "--idle", "10min", by="user",
    )  # fmt: skip
    changed = await bai("service", "update", "chat", "--max", "4", by="user")
    assert changed.stdout == "endpoint chat changed\n"
    runner = api.world.manager.serving.runner
    report = {"gateway_id": "g", "report_id": "1"}
    await api.gateway.post("/gateway/reports", report)
    await runner.step()
    shown = await bai("service", "info", "chat", by="user")
    text = re.sub(r"(?m)^(created_at +).*$", r"\1TIME", shown.stdout)
    text = re.sub(r"http://127.0.0.1:\d+", "http://HUB", text)
    compare("service-info", normalized(text))
    key = (await bai("service", "info", "chat", "--json", by="user")).document["id"]
    load = {"id": key, "in_flight": 9, "queued": 1}
    await api.gateway.post("/gateway/reports", report | {"report_id": "2", "endpoints": [load]})
    for _ in range(2):
        api.world.clock.advance(seconds=6)
        await runner.step()
    listed = await bai("service", "scalings", "chat", by="user")
    assert "burst with a load of 10" in listed.stdout
    tagged = ["service", "update", "chat", "--tag", "b", "--tag", "a"]
    assert (await bai(*tagged, by="user")).code == 0
    shown = await bai("service", "info", "chat", "--json", by="user")
    assert shown.document["tags"] == ["a", "b"]
    await bai("service", "update", "chat", "--tag", "", by="user")
    shown = await bai("service", "info", "chat", "--json", by="user")
    assert shown.document["tags"] == []
    logged = await bai("service", "log", "chat", by="user")
    assert "endpoint.update" in logged.stdout and "endpoint.create" in logged.stdout
    replicas = (await bai("service", "replicas", "chat", "--json", by="user")).document["items"]
    phases = await bai("service", "history", "chat", replicas[0]["id"], by="user")
    assert "starting" in phases.stdout
    assert (
        "replicas of endpoint chat: 1"
        in (await bai("service", "scale", "chat", "1", by="user")).stdout
    )
    shown = await bai("service", "info", "chat", "--json", by="user")
    assert shown.document["scaling"] is None


async def test_info_shows_the_output_of_the_replica_that_has_failed(bai: Bai, api: Api) -> None:
    user = await api.client("user")
    await make(api, user)
    async with server() as (url, _):
        (old,) = await ready(api, user, url)
        assert (await bai("service", "info", "llm", by="user")).stderr == ""
        await end(api, old)
        await step(api, 2)
        async with api.world.manager.database.write() as tx:
            lines = "".join(f"line {number}\n" for number in range(9))
            await tx.execute(sa.update(kernels).values(log=lines))
        shown = await bai("service", "info", "llm", by="user")
        assert shown.stderr.splitlines()[-6:] == [
            f"output of the last replica that has ended: bai session logs {old}",
            *(f"  line {number}" for number in range(4, 9)),
        ]
        # Other users do not see the output of the owner's replica.
        shown = await bai("service", "info", "llm")
        assert shown.stderr.strip().endswith(f"bai session logs {old}")


def test_shown_rule_can_be_replayed() -> None:
    rule = ScalingRule(0, 7, target=2.5, utilization=0.55, stable_seconds=90, idle_seconds=3599)
    assert parse_scaling_rule(rule_text(rule_as_json(rule))) == rule


async def test_measure_and_periods_of_a_rule(bai: Bai, api: Api) -> None:
    await FakeAgent(api.agent).beat()
    words = ["--variant", "vllm", "-r", "cpu=1", "-r", "mem=1g"]
    wrong = await bai("service", "create", "chat", *words, "--period", "someday", by="user")
    assert (wrong.code, "DAYS START-END" in wrong.stderr) == (2, True)
    made = await bai(
        "service", "create", "chat", *words, "--max", "3", "--measure", "metric-mean", "--metric",
        "cache_use", "--target", "0.8", "--period", "sat,sun 22:00-06:00 Asia/Seoul 2-3", by="user",
    )  # fmt: skip
    assert made.code == 0, made.stderr
    shown = (await bai("service", "info", "chat", by="user")).stdout
    assert re.search(r"measure +metric-mean cache_use\n", shown)
    assert re.search(r"schedule +sat,sun 22:00-06:00 Asia/Seoul 2-3\n", shown)
    await bai("service", "update", "chat", "--period", "", by="user")
    shown = (await bai("service", "info", "chat", "--json", by="user")).document
    assert shown["scaling"]["schedule"] == []


async def test_usage_of_endpoints_is_reported(bai: Bai, api: Api) -> None:
    empty = await bai("service", "usage-report", by="user")
    assert (empty.code, "no requests in this period" in empty.stderr) == (0, True)
    user = await api.client("user")
    llm = await make(api, user, "llm")
    token = await user.post("/endpoints/llm/tokens", {"name": "app"})
    await report_use(api, "g1", token["id"], ANONYMOUS + llm["id"])
    words = ("service", "usage-report", "--by", "token", "--every", "day", "--endpoint", "llm")
    shown = (await bai(*words, by="user")).stdout
    assert re.search(r"\d{4}-\d\d-\d\d +llm/app +user +2 +30 +5\b", shown)
    assert "llm/(no token)" in shown
    total = await bai("admin", "endpoint-usage", "--by", "total", "--json", by="admin")
    assert [row["requests"] for row in total.document["rows"]] == [4]
    other = await bai("admin", "endpoint-usage", "--user", "user2", by="admin")
    assert "no requests in this period" in other.stderr


async def test_trial_that_cannot_start_shows_why(bai: Bai, api: Api) -> None:
    await FakeAgent(api.agent).beat()
    words = ["--variant", "cmd", "--command", "serve", "-r", "cpu=9999", "-r", "mem=1g"]
    failed = await bai("service", "try", *words, by="user")
    assert failed.code == 1
    assert "the session was not created" in failed.stdout
    failed = await bai("service", "try", *words, "--json", by="user")
    assert (failed.code, json.loads(failed.stdout)["is_healthy"]) == (1, False)
