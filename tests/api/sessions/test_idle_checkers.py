"""Idle checkers over REST: settings, bindings, results of sessions, keep-alives and replays."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from bai_services.core.sessions.usage_history import FINE, Sample
from bai_services.db.sessions.idle_checks.store import IdleCheckStore
from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.manager.metrics import Metrics
from bai_services.manager.sessions.idle_checks.judging import IdleJudging
from tests.api.sessions.test_sessions import create_running_session, wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import SUPERADMIN, Api

SMALL = {"cpu": "1", "mem": "1g"}
CHECKER = {
    "name": "idle-cpu",
    "type": "utilization",
    "max_seconds": 300,
    "thresholds": {"cpu_util": 5},
    "max_keep_alives": 1,
}


async def create_checker(api: Api, **fields: Any) -> Client:
    """Create a checker that is bound to domain ``default``; return the client of a superadmin."""
    admin = await api.client("admin")
    body = {**CHECKER, **fields}
    await admin.post("/idle-checkers", body)
    binding = {"checker": body["name"], "scope": "domain", "scope_key": "default"}
    await admin.post("/idle-checker-bindings", binding)
    return admin


def judging_of(api: Api) -> IdleJudging:
    """Return an evaluation of idle checkers whose monotonic clock follows the movable clock."""
    manager, clock = api.world.manager, api.world.clock
    return IdleJudging(
        IdleCheckStore(manager.database),
        UsageSampleStore(manager.database),
        manager.sessions.planned_stops,
        clock,
        lease=manager.scheduling.lease,
        metrics=Metrics(),
        monotonic=lambda: clock().timestamp(),
    )


async def pass_time(
    api: Api, judging: IdleJudging, session: dict[str, Any], seconds: int, cpu_cores: float
) -> None:
    """Store samples of the session; the manager evaluates the checkers every 15 s."""
    clock = api.world.clock
    samples = UsageSampleStore(api.world.manager.database)
    for _ in range(seconds // 15):
        at = FINE.start_of(clock())
        await samples.add([Sample(session["kernel_id"], at, {"cpu_cores": cpu_cores})], FINE)
        clock.advance(seconds=15)
        await judging.step()


async def test_checker_is_created_changed_and_deleted(api: Api) -> None:
    admin = await api.client("admin")
    created = await admin.post("/idle-checkers", CHECKER)
    assert {name: created[name] for name in CHECKER} == CHECKER
    assert (created["operator"], created["warnings_seconds"]) == ("and", [120])
    changed = await admin.patch(
        "/idle-checkers/idle-cpu",
        {"operator": "or", "thresholds": {"cpu_util": 5, "cuda_mem": 10}, "description": "x"},
    )
    assert changed == {
        **created,
        "version": 2,
        "operator": "or",
        "thresholds": {"cpu_util": 5, "cuda_mem": 10},
        "description": "x",
    }
    with pytest.raises(errors.AlreadyExists):
        await admin.post("/idle-checkers", CHECKER)
    binding = {"checker": "idle-cpu", "scope": "user", "scope_key": "user", "is_dry_run": True}
    bound = await admin.post("/idle-checker-bindings", binding)
    assert (bound["scope_name"], bound["domain"], bound["is_dry_run"]) == ("user", "default", True)
    with pytest.raises(errors.AlreadyExists):
        await admin.post("/idle-checker-bindings", binding)
    assert (await admin.get("/idle-checkers/idle-cpu"))["bindings"] == 1
    await admin.delete("/idle-checkers/idle-cpu")
    assert (await admin.get("/idle-checker-bindings"))["items"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"type": "gpu"}, "type"),
        ({"thresholds": {}}, "thresholds"),
        ({"thresholds": {"gpu": 5}}, "thresholds"),
        ({"operator": "xor"}, "operator"),
        ({"session_types": ["system"]}, "session_types"),
        ({"max_seconds": 59}, "max_seconds"),
        ({"min_seconds_under_pressure": 301}, "min_seconds_under_pressure"),
        ({"warnings_seconds": [60, 300]}, "warnings_seconds"),
    ],
)
async def test_invalid_setting_is_rejected(api: Api, change: dict[str, Any], field: str) -> None:
    admin = await api.client("admin")
    with pytest.raises(errors.InvalidRequest) as raised:
        await admin.post("/idle-checkers", {**CHECKER, **change})
    assert raised.value.details["field"] == field


async def test_warnings_are_shorter_than_the_window(api: Api) -> None:
    admin = await api.client("admin")
    short = await admin.post("/idle-checkers", {**CHECKER, "max_seconds": 60})
    assert short["warnings_seconds"] == [30]
    long = await admin.post("/idle-checkers", {**CHECKER, "name": "long", "max_seconds": 601})
    assert long["warnings_seconds"] == [600, 120]
    with pytest.raises(errors.InvalidRequest, match=r"10min before the end .* \(5min\)"):
        await admin.patch("/idle-checkers/long", {"max_seconds": 300})
    changed = {"max_seconds": 300, "warnings_seconds": [299]}
    assert (await admin.patch("/idle-checkers/long", changed))["warnings_seconds"] == [299]


@pytest.mark.parametrize(
    ("scope", "key", "message"),
    [
        ("planet", "earth", "'planet' is not a scope"),
        ("domain", "nothing", "there is no domain"),
        ("project", "nothing", "there is no project"),
        ("user", "nothing", "there is no user"),
        ("resource-group", "nothing", "there is no resource-group"),
        ("keypair-policy", "nothing", "there is no keypair-policy"),
    ],
)
async def test_unknown_scope_is_rejected(api: Api, scope: str, key: str, message: str) -> None:
    admin = await api.client("admin")
    await admin.post("/idle-checkers", CHECKER)
    with pytest.raises((errors.NotFound, errors.InvalidRequest), match=message):
        body = {"checker": "idle-cpu", "scope": scope, "scope_key": key}
        await admin.post("/idle-checker-bindings", body)


async def other_admin(api: Api) -> Client:
    """Return the client of the admin of another domain."""
    spec = {"username": "other-admin", "email": "o@example.com", "role": "admin", "domain": "acme"}
    user = await api.world.manager.accounts.users.create(SUPERADMIN, spec)
    api.world.keys["other-admin"] = user.keypair
    return await api.client("other-admin")


async def test_domain_admin_sees_no_bindings_of_resource_groups_or_other_domains(api: Api) -> None:
    admin = await create_checker(api)
    body = {"checker": "idle-cpu", "scope": "resource-group", "scope_key": "default"}
    await admin.post("/idle-checker-bindings", body)
    own, other = await api.client("domain-admin"), await other_admin(api)
    assert [b["scope"] for b in (await own.get("/idle-checker-bindings"))["items"]] == ["domain"]
    assert (await other.get("/idle-checker-bindings"))["items"] == []


async def test_idle_session_shows_its_end_and_can_be_kept_alive(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await create_checker(api)
    session = await create_running_session(api, agent, "lab1", resources=SMALL)
    judging = judging_of(api)
    await pass_time(api, judging, session, 225, 0.01)
    shown = await user.get("/sessions/lab1")
    (check,) = shown["idle_checks"]
    assert (check["status"], check["is_dry_run"], check["keep_alives_left"]) == ("idle", False, 1)
    assert check["reason"].startswith("low utilization: CPU utilization 1% (threshold 5%)")
    assert check["coded"]["code"] == "idle-utilization"
    assert shown["end_rule"]["ends_at"] == check["ends_at"]
    assert shown["end_rule"]["coded"] == check["coded"]
    assert any("idle checker idle-cpu; the session is stopped at" in n for n in shown["notices"])
    kept = await user.post("/sessions/lab1/idle-checks/keep-alive")
    assert kept["idle_checks"][0]["ends_at"] is None
    assert kept["idle_checks"][0]["keep_alives_left"] == 0
    assert kept["end_rule"] is None
    with pytest.raises(errors.Conflict, match="another keep-alive"):
        await user.post("/sessions/lab1/idle-checks/keep-alive")
    (entry,) = (await admin.get("/audit-log", action="session.keep-alive"))["items"]
    assert (entry["entity_name"], entry["owner_id"]) == ("lab1", shown["owner_id"])
    with pytest.raises(errors.Conflict, match="allows its exclusion"):
        await user.put("/sessions/lab1/idle-checks/exclusion", {})
    await pass_time(api, judging, session, 420, 0.01)
    ended = await wait_for_status(user, "lab1", "TERMINATING")
    assert ended["status_coded"]["values"]["name"] == "idle-cpu"
    (decision,) = (await admin.get("/idle-decisions"))["items"]
    assert (decision["session"], decision["owner"], decision["is_dry_run"]) == (
        "lab1",
        "user",
        False,
    )


@pytest.mark.parametrize("change", ["bind", "end of the dry run", "enable", "shorter window"])
async def test_idle_session_gets_the_full_first_warning_of_a_rule_that_takes_effect(
    api: Api, agent: FakeAgent, user: Client, change: str
) -> None:
    admin, judging, clock = await api.client("admin"), judging_of(api), api.world.clock
    await admin.post(
        "/idle-checkers",
        {"name": "net", "type": "network", "max_seconds": 5000, "warnings_seconds": [200, 60]},
    )
    binding = {"checker": "net", "scope": "domain", "scope_key": "default"}
    created = None
    if change != "bind":
        options = {"end of the dry run": {"is_dry_run": True}, "enable": {"is_enabled": False}}
        binding |= options.get(change, {})
        created = await admin.post("/idle-checker-bindings", binding)
    if change != "shorter window":
        await admin.patch("/idle-checkers/net", {"max_seconds": 300})
    session = await create_running_session(api, agent, "lab1", resources=SMALL)
    clock.advance(seconds=1000)
    if created is None:
        await admin.post("/idle-checker-bindings", binding)
    elif change == "shorter window":
        await admin.patch("/idle-checkers/net", {"max_seconds": 300})
    else:
        changes = {"is_enabled": True, "is_dry_run": False}
        await admin.patch(f"/idle-checker-bindings/{created['id']}", changes)
    clock.advance(seconds=10)
    reporter = await api.world.manager.accounts.callers.in_session("user", "10.0.0.1")
    await api.world.manager.sessions.activity.record_use(reporter, session["id"], 900)
    await judging.step()
    (check,) = (await user.get("/sessions/lab1"))["idle_checks"]
    left = datetime.fromisoformat(check["earliest_end_at"]) - clock()
    assert 200 <= left.total_seconds() <= 215


async def test_rules_are_named_before_the_session_is_idle(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await create_checker(api)
    session = await create_running_session(api, agent, "lab1", resources=SMALL)
    judging = judging_of(api)
    await pass_time(api, judging, session, 60, 0.5)
    (check,) = (await user.get("/sessions/lab1"))["idle_checks"]
    rule = "low utilization: CPU utilization below 5% in 90% of the samples of 5min; idle checker"
    assert (check["status"], check["reason"]) == ("active", f"{rule} idle-cpu")
    assert check["coded"]["code"] == "idle-utilization"
    assert (check["earliest_end_at"], check["ends_at"]) == (None, None)
    await pass_time(api, judging, session, 60, 0.01)
    (check,) = (await user.get("/sessions/lab1"))["idle_checks"]
    assert (check["status"], check["ends_at"]) == ("active", None)
    end, warning = (
        datetime.fromisoformat(check[name]) for name in ("earliest_end_at", "earliest_warning_at")
    )
    assert end > warning > api.world.clock()


async def test_strictest_limit_is_named(api: Api, agent: FakeAgent, user: Client) -> None:
    admin = await create_checker(
        api, name="long", type="session-lifetime", thresholds={}, max_seconds=7200
    )
    session = await create_running_session(api, agent, "lab1", resources=SMALL)
    judging = judging_of(api)
    await pass_time(api, judging, session, 15, 0.5)
    rule = (await user.get("/sessions/lab1"))["end_rule"]
    assert "idle checker long" in rule["reason"]
    await admin.patch("/keypair-policies/default", {"max_session_lifetime_seconds": 3600})
    rule = (await user.get("/sessions/lab1"))["end_rule"]
    assert rule["reason"].endswith("the limit of keypair policy default")
    started = datetime.fromisoformat(session["started_at"])
    assert datetime.fromisoformat(rule["ends_at"]) == started + timedelta(hours=1)


async def test_network_checker_requires_frequent_reports(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await create_checker(api, name="net", type="network", thresholds={}, max_seconds=600)
    session = await create_running_session(api, agent, "lab1", resources=SMALL)
    manager, judging = api.world.manager, judging_of(api)
    await judging.step()
    caller = await manager.accounts.callers.in_session("user", "10.0.0.1")
    report = await manager.sessions.activity.record_use(caller, session["id"], 0)
    assert report.next_report_seconds == 60
    assert report.idle_ends_at is not None
    api.world.clock.advance(seconds=590)
    await manager.sessions.activity.record_use(caller, session["id"], 590)
    await judging.step()
    (check,) = (await user.get("/sessions/lab1"))["idle_checks"]
    assert (check["type"], check["status"], check["warning_seconds"]) == ("network", "idle", 120)


async def test_session_that_has_not_been_judged_reports_often_enough(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await create_checker(api, name="net", type="network", thresholds={}, max_seconds=600)
    session = await create_running_session(api, agent, "lab1", resources=SMALL)
    caller = await api.world.manager.accounts.callers.in_session("user", "10.0.0.1")
    report = await api.world.manager.sessions.activity.record_use(caller, session["id"], 0)
    assert report.next_report_seconds == 60


async def test_replay_shows_what_a_rule_would_have_stopped(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    session = await create_running_session(api, agent, "lab1", resources=SMALL)
    judging = judging_of(api)
    await pass_time(api, judging, session, 450, 0.01)
    rule = {"max_seconds": 300, "thresholds": {"cpu_util": 5}, "period_seconds": 3600}
    result = await admin.post("/idle-replays", rule)
    assert (result["judged"], result["stopped"], result["stopped_wrongly"]) == (1, 1, 0)
    assert result["is_complete"] is True
    (stop,) = result["stops"]
    assert (stop["session"], stop["owner"], stop["used_again_at"]) == ("lab1", "user", None)
    await pass_time(api, judging, session, 30, 0.9)
    again = await admin.post("/idle-replays", rule)
    assert (again["stopped"], again["stopped_wrongly"]) == (1, 1)
    other = await (await other_admin(api)).post("/idle-replays", rule)
    assert other["judged"] == 0
    with pytest.raises(errors.InvalidRequest, match="30 days"):
        await admin.post("/idle-replays", {**rule, "period_seconds": 31 * 86400})
    await create_checker(api, name="life", type="session-lifetime", thresholds={})
    with pytest.raises(errors.InvalidRequest, match="only utilization checkers"):
        await admin.post("/idle-replays", {"checker": "life"})
