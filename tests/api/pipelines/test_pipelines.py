"""Pipelines over REST: definitions, and runs whose tasks are batch sessions."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.coded_text import CodedText
from bai_services.core.errors import BaiError, InUse, QuotaExceeded
from bai_services.core.pipelines.caching import CACHED_LINE
from bai_services.core.pipelines.definition import PipelineDefinition
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.db.tables.pipelines import pipelines
from tests.api.sessions.test_session_features import report_exit
from tests.api.sessions.test_sessions import bring_to_running, wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

# Lists contain this part of a stored definition.
PARTIAL = {
    "parameters": [{"name": "level", "type": "integer", "default": 3, "description": "Speed"}]
}
APPROVAL = "tasks:\n- {name: check, kind: approval}\n"

HEAD = "version: 1\nname: {name}\ndefaults: {{resources: {{cpu: 1, mem: 1g}}}}\n"
CHAIN = """\
tasks:
- {name: prepare, command: make data}
- name: train
  command: make model
  needs: [prepare]
  retries: 1
  retry_delay: 0
- {name: report, command: make report, needs: [train], outputs: [report.html]}
"""


def text_of(name: str, tasks: str) -> str:
    return HEAD.format(name=name) + tasks


async def create(user: Client, name: str, tasks: str) -> dict[str, Any]:
    return dict(await user.post("/pipelines", {"definition": text_of(name, tasks)}))


async def wait_for_tasks(user: Client, run_id: str, **statuses: str) -> dict[str, Any]:
    """Wait until task runs have these statuses; return the run."""

    async def detail() -> dict[str, Any] | None:
        found = dict(await user.get(f"/pipeline-runs/{run_id}"))
        actual = {each["task"]: each["status"] for each in found["task_runs"]}
        return found if statuses.items() <= actual.items() else None

    return dict(await wait_until_async(detail, 20, f"tasks to be {statuses}"))


async def wait_for_run(user: Client, run_id: str, status: str) -> dict[str, Any]:
    async def detail() -> dict[str, Any] | None:
        found = dict(await user.get(f"/pipeline-runs/{run_id}"))
        return found if found["run"]["status"] == status else None

    return dict(await wait_until_async(detail, 20, f"the run to be {status}"))


async def wait_for_session(user: Client, run_id: str, task: str) -> str:
    """Wait until a task is queued with a session; return its id."""

    async def session() -> str | None:
        detail = await user.get(f"/pipeline-runs/{run_id}")
        found = next(each for each in detail["task_runs"] if each["task"] == task)
        return found["session"] if found["status"] == "queued" else None

    return str(await wait_until_async(session, 20, f"the session of {task}"))


async def run_task(
    api: Api, agent: FakeAgent, user: Client, run_id: str, task: str, code: int, log: str = ""
) -> None:
    """Run the session of a queued task until its command exits with a code and a log."""
    session = await bring_to_running(api, agent, await wait_for_session(user, run_id, task))
    await wait_for_tasks(user, run_id, **{task: "running"})
    await report_exit(api, session, code, log=log)
    await agent.beat([])


@pytest.mark.both_databases
async def test_task_from_the_cache_is_marked(api: Api, agent: FakeAgent, user: Client) -> None:
    tasks = """\
tasks:
- {name: old, command: x, outputs: [y], cache: true}
- {name: new, command: x, outputs: [y], cache: true, needs: [old]}
- {name: plain, command: x, outputs: [y], needs: [new]}
"""
    await create(user, "caching", tasks)
    key = (await user.post("/pipelines/caching/runs", {}))["id"]
    logs = {"old": f"100 %\n{CACHED_LINE}\n", "new": "", "plain": f"{CACHED_LINE}\n"}
    for task, log in logs.items():
        await run_task(api, agent, user, key, task, 0, log)
    detail = await wait_for_run(user, key, "succeeded")
    # A task without a cache cannot be from the cache, whatever its log contains.
    cached = {each["task"]: each["is_cached"] for each in detail["task_runs"]}
    assert cached == {"old": True, "new": False, "plain": False}


async def test_run_retries_fails_and_is_resumed(api: Api, agent: FakeAgent, user: Client) -> None:
    pipeline = await create(user, "chain", CHAIN)
    assert (pipeline["version"], pipeline["tasks"], pipeline["last_run_id"]) == (1, 3, None)
    run = await user.post("/pipelines/chain/runs", {})
    key = run["id"]
    await run_task(api, agent, user, key, "prepare", 0)
    # The first failure is retried.
    first = await wait_for_session(user, key, "train")
    shown = await user.get(f"/sessions/{first}")
    assert (shown["type"], shown["mounts"][0]["path"]) == ("batch", "/pipeline")
    assert shown["environ"]["PIPELINE_RUN"] == key
    await run_task(api, agent, user, key, "train", 1)
    assert await wait_for_session(user, key, "train") != first
    await run_task(api, agent, user, key, "train", 1)
    detail = await wait_for_run(user, key, "failed")
    assert detail["run"]["tasks_by_status"] == {"blocked": 1, "failed": 1, "succeeded": 1}
    with pytest.raises(BaiError, match="the run is failed; it cannot be cancelled"):
        await user.delete(f"/pipeline-runs/{key}")
    # A resumed run repeats only what has not succeeded.
    await user.post(f"/pipeline-runs/{key}/resumption", {})
    await run_task(api, agent, user, key, "train", 0)
    await run_task(api, agent, user, key, "report", 0)
    detail = await wait_for_run(user, key, "succeeded")
    attempts = {each["task"]: each["attempt"] for each in detail["task_runs"]}
    assert attempts == {"prepare": 1, "train": 3, "report": 1}
    (listed,) = (await user.get("/pipeline-runs"))["items"]
    assert (listed["status"], listed["tasks_by_status"]) == ("succeeded", {"succeeded": 3})
    assert (await user.get("/pipelines/chain"))["last_run_status"] == "succeeded"
    admin = await api.client("admin")
    actions = {each["action"] for each in (await admin.get("/audit-log"))["items"]}
    assert {"pipeline.create", "pipeline.run", "pipeline.resume"} <= actions


@pytest.mark.checklist("JOB-06")
async def test_user_is_notified_of_runs_and_approvals_but_not_of_their_sessions(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    step = api.world.manager.notifications.outbox.step
    await step()  # notifications are sent only for events after the first step
    await create(
        user,
        "notices",
        "tasks:\n- {name: train, command: x}\n- {name: check, kind: approval, needs: [train]}\n",
    )
    keys = []
    for is_approved, end in ((True, "succeeded"), (False, "failed")):
        key = (await user.post("/pipelines/notices/runs", {}))["id"]
        keys.append(key)
        await run_task(api, agent, user, key, "train", 0)
        await wait_for_tasks(user, key, check="awaiting-approval")
        path = f"/pipeline-runs/{key}/tasks/check/approval"
        await user.post(path, {"is_approved": is_approved})
        await wait_for_run(user, key, end)
        api.world.clock.advance(seconds=1)
        await step()
    found = (await user.get("/notifications"))["items"]
    asked = ("approval-requested", "pipeline notices: task check waits for your approval")
    ended = "a run of pipeline notices has"
    assert sorted((each["link"], each["event"], each["text"]) for each in found) == sorted(
        [
            *((f"pipelines?run={key}", *asked) for key in keys),
            (f"pipelines?run={keys[0]}", "run-succeeded", f"{ended} succeeded"),
            (f"pipelines?run={keys[1]}", "run-failed", f"{ended} failed"),
        ]
    )


async def test_queued_task_shows_why_its_session_waits(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await create(user, "large", "tasks:\n- {name: fit, command: x, resources: {cpu: 5}}\n")
    await create(user, "waits", "tasks:\n- {name: fit, command: x, resources: {cpu: 5}}\n")
    first = (await user.post("/pipelines/large/runs", {}))["id"]
    await wait_for_status(user, await wait_for_session(user, first, "fit"), "SCHEDULED")
    key = (await user.post("/pipelines/waits/runs", {}))["id"]

    async def waiting() -> dict[str, Any] | None:
        (task,) = (await user.get(f"/pipeline-runs/{key}"))["task_runs"]
        return task if task["message"] else None

    found = await wait_until_async(waiting, 20, "the reason of the queued task")
    assert found is not None and "cpu=5 requested" in found["message"]
    # The pages show the error in the language of the user.
    assert str(CodedText.from_json(found["message_coded"])) == found["message"]
    for run in (first, key):
        await user.delete(f"/pipeline-runs/{run}")
        await wait_for_run(user, run, "cancelled")


async def test_cancelled_run_ends_its_sessions(api: Api, agent: FakeAgent, user: Client) -> None:
    await create(user, "stopped", CHAIN)
    key = (await user.post("/pipelines/stopped/runs", {}))["id"]
    session = await wait_for_session(user, key, "prepare")
    await wait_for_status(user, session, "SCHEDULED")
    assert (await user.delete(f"/pipeline-runs/{key}"))["status"] == "cancelling"
    detail = await wait_for_run(user, key, "cancelled")
    assert {each["status"] for each in detail["task_runs"]} == {"cancelled"}
    (message,) = [each for each in detail["task_runs"] if each["message"]]
    assert message["message_coded"]["code"] == "pipeline-task-cancelled"
    ended = await wait_for_status(user, session, "CANCELLED")
    assert ended["status_info"] == "the run of the pipeline was cancelled"


async def test_approval_condition_and_map_control_the_tasks(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    tasks = """\
parameters:
- {name: level, type: integer, default: 1}
- {name: names, type: list, default: [a, b]}
tasks:
- {name: check, kind: approval}
- name: high
  kind: condition
  condition: {parameter: level, operator: ">", value: 5}
  needs: [check]
- {name: extra, command: x, needs: [high]}
- {name: each, command: x, needs: [check], for_each: {parameter: names, max_parallel: 1}}
"""
    await create(user, "asks", tasks)
    with pytest.raises(BaiError, match="must be of the type integer"):
        await user.post("/pipelines/asks/runs", {"parameters": {"level": "x"}})
    key = (await user.post("/pipelines/asks/runs", {"parameters": {"names": "b, c"}}))["id"]
    await wait_for_tasks(user, key, check="awaiting-approval", each="waiting")
    path = f"/pipeline-runs/{key}/tasks"
    with pytest.raises(BaiError, match="does not wait"):
        await user.post(f"{path}/extra/approval", {"is_approved": True})
    await user.post(f"{path}/check/approval", {"is_approved": True})
    detail = await wait_for_tasks(user, key, check="succeeded", high="skipped", extra="skipped")
    mapped = [each for each in detail["task_runs"] if each["task"] == "each"]
    assert [(each["item"], each["status"]) for each in mapped] == [
        ("b", "queued"),
        ("c", "waiting"),
    ]
    await user.delete(f"/pipeline-runs/{key}")
    key = (await user.post("/pipelines/asks/runs", {}))["id"]
    await wait_for_tasks(user, key, check="awaiting-approval")
    await user.post(f"/pipeline-runs/{key}/tasks/check/approval", {"is_approved": False})
    detail = await wait_for_run(user, key, "failed")
    answer = next(each for each in detail["task_runs"] if each["task"] == "check")
    assert answer["message"] == "rejected by user"
    coded = {"code": "pipeline-task-rejected", "values": {"name": "user"}, "parts": []}
    assert answer["message_coded"] == coded


async def test_refused_session_fails_its_task(agent: FakeAgent, user: Client) -> None:
    tasks = "tasks:\n- {name: odd, command: x, image: there-is-no-such-image}\n"
    await create(user, "refused", tasks)
    key = (await user.post("/pipelines/refused/runs", {}))["id"]
    detail = await wait_for_run(user, key, "failed")
    assert "no image" in detail["task_runs"][0]["message"]
    assert detail["task_runs"][0]["message_coded"] is None


async def test_task_above_a_quota_fails_and_does_not_wait(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    tasks = "tasks:\n- {name: fit, command: x, cluster_size: 3, cluster_mode: multi-node}\n"
    await create(user, "cluster", tasks)
    run = await user.post("/pipelines/cluster/runs", {})
    detail = await wait_for_run(user, run["id"], "failed")
    assert "may have at most 1" in detail["task_runs"][0]["message"]

    policy = {"max_containers_per_session": 3}
    await (await api.client("admin")).patch("/keypair-policies/default", policy)
    run = await user.post("/pipelines/cluster/runs", {})
    session = await user.get(f"/sessions/{await wait_for_session(user, run['id'], 'fit')}")
    assert (session["type"], session["cluster_mode"]) == ("batch", "multi-node")
    assert [one["hostname"] for one in session["kernels"]] == ["main1", "sub1", "sub2"]


async def test_definition_is_versioned_and_frozen_in_runs(agent: FakeAgent, user: Client) -> None:
    made = await create(user, "versions", CHAIN)
    key = (await user.post("/pipelines/versions/runs", {}))["id"]
    with pytest.raises(BaiError, match="line 5"):
        await user.patch("/pipelines/versions", {"definition": text_of("a", "tasks:\n- x")})
    tasks = "tasks:\n- {name: other, command: x}\n"
    changed = await user.patch(
        "/pipelines/versions", {"definition": text_of("versions", tasks), "version": 1}
    )
    assert (changed["version"], changed["folder"]) == (2, made["folder"])
    with pytest.raises(BaiError, match="another user has changed"):
        await user.patch(
            "/pipelines/versions", {"definition": text_of("versions", tasks), "version": 1}
        )
    detail = await user.get(f"/pipeline-runs/{key}")
    assert detail["definition"] == made["definition"]
    assert len(detail["task_runs"]) == 3
    versions = (await user.get("/pipelines/versions/versions"))["items"]
    assert [each["version"] for each in versions] == [2, 1]
    with pytest.raises(BaiError, match="in use by 1 run"):
        await user.delete("/pipelines/versions")
    await user.delete(f"/pipeline-runs/{key}")
    await wait_for_run(user, key, "cancelled")
    await user.delete("/pipelines/versions")
    assert (await user.get("/pipelines"))["items"] == []


async def test_concurrent_runs_are_limited(agent: FakeAgent, user: Client) -> None:
    await create(user, "single", "max_concurrent_runs: 1\n" + CHAIN)
    first, second = [(await user.post("/pipelines/single/runs", {}))["id"] for _ in range(2)]
    await wait_for_run(user, first, "running")
    assert (await user.get(f"/pipeline-runs/{second}"))["run"]["status"] == "waiting"
    await user.delete(f"/pipeline-runs/{first}")
    await wait_for_run(user, second, "running")


async def test_validation_names_the_line(user: Client) -> None:
    check = await user.post("/pipeline-checks", {"definition": text_of("ok", CHAIN)})
    assert check["is_valid"]
    assert [task["name"] for task in check["tasks"]] == ["prepare", "train", "report"]
    check = await user.post("/pipeline-checks", {"definition": "version: 1\nname: x\ntasks: 3"})
    assert (check["is_valid"], check["line"]) == (False, 3)
    schema = (await user.get("/pipeline-schema"))["json_schema"]
    assert "tasks" in schema["properties"]


@pytest.mark.both_databases
async def test_lists_do_not_read_definitions(api: Api, user: Client) -> None:
    """200 definitions of 1 MiB would block the manager."""
    await api.world.manager.folders.start()
    parameters = "parameters:\n- {name: level, type: integer, default: 3, description: Speed}\n"
    made = await create(user, "listed", parameters + APPROVAL)
    async with api.world.manager.database.write() as tx:
        await tx.execute(sa.update(pipelines).values(definition="not read", parsed=PARTIAL))
    (listed,) = (await user.get("/pipelines"))["items"]
    assert listed == {**made, "definition": ""}
    assert listed["parameters"][0]["default"] == 3


async def test_resumed_runs_count_towards_the_limit(
    api: Api, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.world.manager.folders.start()
    monkeypatch.setattr("bai_services.db.pipelines.runs.MAX_OPEN_RUNS", 1)
    await create(user, "many", APPROVAL)
    key = (await user.post("/pipelines/many/runs", {}))["id"]
    await user.delete(f"/pipeline-runs/{key}")
    await wait_for_run(user, key, "cancelled")
    other = (await user.post("/pipelines/many/runs", {}))["id"]
    with pytest.raises(QuotaExceeded, match="you have 1 runs"):
        await user.post(f"/pipeline-runs/{key}/resumption", {})
    await user.delete(f"/pipeline-runs/{other}")
    await wait_for_run(user, other, "cancelled")
    await user.post(f"/pipeline-runs/{key}/resumption", {})


async def test_old_versions_are_removed(
    api: Api, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.world.manager.folders.start()
    monkeypatch.setattr("bai_services.db.pipelines.definitions.MAX_VERSIONS", 12)
    made = await create(user, "changed", APPROVAL)
    for _ in range(13):
        await user.patch("/pipelines/changed", {"definition": made["definition"]})
    page = await user.get("/pipelines/changed/versions", limit=500)
    assert [each["version"] for each in page["items"]] == list(range(14, 4, -1))
    assert (page["total"], page["limit"]) == (12, 10)


async def test_project_with_pipelines_is_not_deleted(api: Api, user: Client) -> None:
    await api.world.manager.folders.start()
    admin = await api.client("admin")
    await admin.post("/projects", {"name": "vision", "domain": "default"})
    await admin.put("/projects/vision/members/user", {})
    definition = text_of("kept", APPROVAL)
    await user.post("/pipelines", {"definition": definition, "project": "vision"})
    with pytest.raises(InUse, match="in use by 1 pipeline"):
        await admin.delete("/projects/vision")
    await user.delete("/pipelines/kept")
    await admin.delete("/projects/vision")


async def test_only_one_definition_is_parsed_at_a_time(
    user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several parsers could occupy all threads, and the scheduler needs some of these threads."""
    lock, overlaps = threading.Lock(), []

    def parse(text: str) -> PipelineDefinition:
        is_first = lock.acquire(blocking=False)
        overlaps.append(not is_first)
        try:
            return parse_pipeline(text)
        finally:
            if is_first:
                lock.release()

    monkeypatch.setattr("bai_services.manager.pipelines.pipelines.parse_pipeline", parse)
    tasks = "tasks:\n" + "".join(f"- {{name: t{n}, command: x}}\n" for n in range(300))
    checks = [user.post("/pipeline-checks", {"definition": text_of("ok", tasks)}) for _ in range(6)]
    assert all(check["is_valid"] for check in await asyncio.gather(*checks))
    assert overlaps == [False] * 6


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/pipeline-checks"),
        ("POST", "/pipelines"),
        ("PATCH", "/pipelines/many"),
        ("POST", "/pipeline-templates"),
        ("POST", "/pipeline-conversions"),
    ],
)
async def test_definitions_of_a_user_do_not_delay_those_of_others(
    api: Api, user: Client, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    await api.world.manager.folders.start()
    if method == "PATCH":
        await create(user, "many", APPROVAL)
    other = await api.client("user2")
    arrived: list[str] = []
    may_end = asyncio.Event()

    async def slow(text: str) -> PipelineDefinition:
        arrived.append(text)
        await may_end.wait()
        return parse_pipeline(text)

    service = api.world.manager.pipelines.pipelines
    monkeypatch.setattr(service, "parse", slow)
    monkeypatch.setattr(service, "convert", lambda caller, text, name, target: slow(text))
    text = text_of("many", APPROVAL)
    body = {"text" if path == "/pipeline-conversions" else "definition": text}
    requests = [asyncio.create_task(user.http.request(method, path, json=body)) for _ in range(5)]
    await wait_until_async(lambda: len(arrived) == 2, 10, "two definitions of user")
    check = other.http.post("/pipeline-checks", json={"definition": "other"})
    requests.append(asyncio.create_task(check))
    await wait_until_async(lambda: "other" in arrived, 10, "a definition of user2")
    assert arrived == [text, text, "other"]
    may_end.set()
    await asyncio.gather(*requests)


@pytest.mark.both_databases
async def test_oldest_ended_run_of_a_user_is_deleted(
    api: Api, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has a copy of the definition, so the number of all runs is limited."""
    await api.world.manager.folders.start()
    monkeypatch.setattr("bai_services.db.pipelines.runs.RUNS_KEPT_PER_USER", 2)
    keys = []
    for number in range(4):
        await create(user, f"kept-{number}", "max_concurrent_runs: 1\n" + APPROVAL)
        keys.append((await user.post(f"/pipelines/kept-{number}/runs", {}))["id"])
        await user.delete(f"/pipeline-runs/{keys[-1]}")
        await wait_for_run(user, keys[-1], "cancelled")
        api.world.clock.advance(seconds=1)
    items = (await user.get("/pipeline-runs"))["items"]
    assert [each["id"] for each in items] == [keys[3], keys[2]]


@pytest.mark.both_databases
async def test_removed_folder_is_replaced(api: Api, user: Client) -> None:
    await api.world.manager.folders.start()
    made = await create(user, "lost", APPROVAL)
    await user.delete(f"/vfolders/{made['folder']}")
    await user.post(f"/vfolders/{made['folder']}/purge", {})
    await api.world.manager.folders.vfolders.wait_for_tasks()
    for path in ("/pipelines/lost", "/pipelines"):
        found = await user.get(path)
        assert (found["items"][0] if "items" in found else found)["folder"] is None
    with pytest.raises(BaiError, match="the folder of pipeline lost was removed"):
        await user.post("/pipelines/lost/runs", {})
    with pytest.raises(BaiError, match="another user has changed"):
        await user.patch("/pipelines/lost", {"definition": made["definition"], "version": 7})
    folders = (await user.get("/vfolders"))["items"]
    assert [each["status"] for each in folders if each["status"] == "ready"] == []
    changed = await user.patch("/pipelines/lost", {"definition": made["definition"]})
    assert changed["folder"] not in (None, made["folder"])
