"""Triggers: each file that appears, and each end of a run of another pipeline, creates one run."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import BaiError, Conflict, InvalidRequest, NotFound, TooLarge
from bai_services.db.pipelines.triggers import PipelineTriggerStore
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.manager.pipelines.trigger_runner import PipelineTriggerRunner
from bai_services.manager.scheduling.lease import Lease
from tests.manager.test_schedule_runner import KilledError, killed_before
from tests.testbed.manager import Api

from .test_pipeline_kills import runner_of

TEXT = """\
version: 1
name: {name}
max_concurrent_runs: 100
parameters: [{{name: source, default: none}}]
tasks:
- {{name: check, kind: approval}}
"""


class Watched:
    """Pipelines of ``user`` with triggers, and the loops of triggers."""

    def __init__(self, api: Api, user: Client) -> None:
        self.api = api
        self.user = user
        self.manager = api.world.manager
        self.lease = Lease(LeaseStore(self.manager.database), api.world.clock, seconds=10**9)
        self.loops = self.new_loops()
        self.folder = ""
        self.path = Path()

    def new_loops(self) -> PipelineTriggerRunner:
        """Return the loops of a manager that has just started."""
        pipelines = self.manager.pipelines
        return PipelineTriggerRunner(
            PipelineTriggerStore(self.manager.database),
            pipelines.triggers,
            pipelines.pipelines,
            self.manager.accounts.callers,
            lease=self.lease,
        )

    async def create(self, **fields: Any) -> dict[str, Any]:
        body = {"pipeline": "train", "name": "event", **fields}
        return dict(await self.user.post("/pipeline-triggers", body))

    async def watch(self, pattern: str = "in/*.csv", **fields: Any) -> dict[str, Any]:
        given = {"source": "$FILE"}
        body = {"kind": "file", "folder": self.folder, "pattern": pattern, "parameters": given}
        return await self.create(**{**body, **fields})

    async def get(self, name: str = "event") -> dict[str, Any]:
        (found,) = (await self.user.get("/pipeline-triggers", name=name))["items"]
        return dict(found)

    def write(self, path: str, text: str = "x") -> None:
        """Write a file as a session does."""
        file = self.path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    async def search(self, times: int = 2) -> None:
        for _ in range(times):
            await self.loops.search_folders()

    async def sources(self, pipeline: str = "train") -> list[str]:
        """Return the parameter of the runs of a pipeline, the oldest first."""
        query = {"pipeline": pipeline, "sort": "created_at", "limit": 200}
        runs = (await self.user.get("/pipeline-runs", **query))["items"]
        return [run["parameters"]["source"] for run in runs]

    async def run(self, pipeline: str) -> str:
        return str((await self.user.post(f"/pipelines/{pipeline}/runs", {}))["id"])

    async def end(self, key: str, *, is_approved: bool) -> None:
        """End a run with a decision of its approval."""
        runner = runner_of(self.manager, self.lease)
        await runner.step()
        path = f"/pipeline-runs/{key}/tasks/check/approval"
        await self.user.post(path, {"is_approved": is_approved})
        await runner.step()


@pytest.fixture
async def watched(api: Api, tmp_path: Path) -> Watched:
    await api.world.manager.folders.start()
    found = Watched(api, await api.client("user"))
    assert await found.lease.hold() is not None
    for name in ("train", "prepare"):
        await found.user.post("/pipelines", {"definition": TEXT.format(name=name)})
    made = await found.user.post("/vfolders", {"name": "inbox"})
    found.folder = made["id"]
    (found.path,) = (tmp_path / "vfolders").glob(f"user/*/{made['id']}")
    return found


async def test_each_new_file_creates_one_run(watched: Watched) -> None:
    watched.write("in/old.csv")
    await watched.watch("*/*.csv")
    watched.write("in/a.csv")
    watched.write("in/a.txt")
    watched.write("in/.a.csv")
    (watched.path / "in" / "link.csv").symlink_to("a.txt")
    (watched.path / "in" / "directory.csv").mkdir()
    (watched.path / "linked").symlink_to("in")
    # Files whose names cannot be parameters create no run.
    watched.write("in/a\n.csv")
    watched.write("in/\udcff.csv")
    await watched.search(4)
    assert await watched.sources() == ["in/a.csv"]
    found = await watched.get()
    assert (found["last_message"], found["kind"], found["folder"]) == ("", "file", "inbox")
    (run,) = (await watched.user.get("/pipeline-runs"))["items"]
    assert (run["cause"], run["id"], run["owner"]) == (
        "trigger event",
        found["last_run_id"],
        "user",
    )
    # A file that is written again is not new; a file that is removed and appears again is.
    watched.write("in/a.csv", "more")
    await watched.search()
    (watched.path / "in" / "a.csv").unlink()
    await watched.search()
    assert await watched.sources() == ["in/a.csv"]
    watched.write("in/a.csv")
    await watched.search()
    assert await watched.sources() == ["in/a.csv"] * 2


async def test_file_that_is_being_written_waits(watched: Watched) -> None:
    await watched.watch()
    for size in range(1, 4):
        watched.write("in/a.csv", "x" * size)
        await watched.search(1)
        assert await watched.sources() == []
    await watched.search(1)
    assert await watched.sources() == ["in/a.csv"]


async def test_files_that_appear_while_the_trigger_is_disabled_create_no_runs(
    watched: Watched,
) -> None:
    path = f"/pipeline-triggers/{(await watched.watch())['id']}"
    await watched.user.patch(path, {"is_enabled": False})
    watched.write("in/a.csv")
    await watched.search()
    await watched.user.patch(path, {"is_enabled": True})
    watched.write("in/b.csv")
    await watched.search()
    assert await watched.sources() == ["in/b.csv"]


async def test_problem_of_a_folder_is_shown_until_it_is_solved(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.watch()
    monkeypatch.setattr("bai_services.manager.pipelines.triggers.MAX_MATCHES", 1)
    for name in ("a", "b"):
        watched.write(f"in/{name}.csv")
    await watched.search()
    assert (await watched.get())["last_message"] == "more than 1 files match the pattern"
    (watched.path / "in" / "b.csv").unlink()
    await watched.search()
    assert (await watched.get())["last_message"] == ""
    assert await watched.sources() == ["in/a.csv"]
    await watched.user.delete(f"/vfolders/{watched.folder}")
    await watched.search()
    assert "trash" in (await watched.get())["last_message"]


async def test_file_waits_for_the_quota_of_runs(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.watch()
    key = await watched.run("prepare")
    monkeypatch.setattr("bai_services.db.pipelines.runs.MAX_OPEN_RUNS", 1)
    watched.write("in/a.csv")
    await watched.search()
    assert "runs that have not ended" in (await watched.get())["last_message"]
    await watched.end(key, is_approved=True)
    await watched.search(1)
    assert await watched.sources() == ["in/a.csv"]
    assert (await watched.get())["last_message"] == ""


async def test_refused_run_is_explained(watched: Watched) -> None:
    await watched.watch()
    text = TEXT.format(name="train").replace("source", "other")
    await watched.user.patch("/pipelines/train", {"definition": text})
    watched.write("in/a.csv")
    await watched.search()
    assert "there is no parameter 'source'" in (await watched.get())["last_message"]


@pytest.mark.parametrize(
    ("result", "sources"),
    [
        ("success", ["succeeded"]),
        ("failure", ["failed"]),
        ("any", ["succeeded", "failed", "cancelled"]),
    ],
)
async def test_end_of_a_run_fires_triggers(
    watched: Watched, result: str, sources: list[str]
) -> None:
    fields = {"kind": "pipeline", "source": "prepare", "result": result}
    await watched.create(**fields, parameters={"source": "$STATUS"})
    for is_approved in (True, False):
        await watched.end(await watched.run("prepare"), is_approved=is_approved)
        await watched.loops.process_runs()
        watched.api.world.clock.advance(seconds=1)
    await watched.user.delete(f"/pipeline-runs/{await watched.run('prepare')}")
    for _ in range(2):
        await watched.loops.process_runs()
    assert await watched.sources() == sources


async def test_each_end_of_a_resumed_run_fires(watched: Watched) -> None:
    await watched.create(kind="pipeline", source="prepare", parameters={"source": "$RUN"})
    key = await watched.run("prepare")
    await watched.end(key, is_approved=False)
    await watched.loops.process_runs()
    assert await watched.sources() == []
    await watched.user.post(f"/pipeline-runs/{key}/resumption", {})
    await watched.end(key, is_approved=True)
    await watched.loops.process_runs()
    assert await watched.sources() == [key]


async def test_disabled_trigger_ignores_runs(watched: Watched) -> None:
    made = await watched.create(kind="pipeline", source="prepare")
    path = f"/pipeline-triggers/{made['id']}"
    await watched.user.patch(path, {"is_enabled": False})
    await watched.end(await watched.run("prepare"), is_approved=True)
    await watched.user.patch(path, {"is_enabled": True})
    await watched.loops.process_runs()
    assert await watched.sources() == []


async def test_cycle_is_refused_with_its_pipelines(watched: Watched) -> None:
    user = watched.user
    await user.post("/pipelines", {"definition": TEXT.format(name="report")})
    for source, pipeline in (("prepare", "train"), ("train", "report")):
        await watched.create(kind="pipeline", source=source, pipeline=pipeline)
    cycle = "report → prepare → train → report"
    with pytest.raises(InvalidRequest, match=f"would form a cycle: {cycle}"):
        await watched.create(kind="pipeline", source="report", pipeline="prepare")
    with pytest.raises(InvalidRequest, match="would form a cycle: train → train"):
        await watched.create(kind="pipeline", source="train", name="again")


async def test_cycle_of_simultaneous_requests_creates_no_runs(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.manager.pipelines.triggers.chain", lambda *_: [])
    for source, pipeline in (("prepare", "train"), ("train", "prepare")):
        await watched.create(kind="pipeline", source=source, pipeline=pipeline)
    await watched.end(await watched.run("prepare"), is_approved=True)
    await watched.loops.process_runs()
    assert await watched.sources() == []
    (found,) = (await watched.user.get("/pipeline-triggers", pipeline="train"))["items"]
    assert "form a cycle" in found["last_message"]


async def test_only_readable_folders_and_pipelines_are_watched(watched: Watched) -> None:
    other = await watched.api.client("user2")
    await other.post("/pipelines", {"definition": TEXT.format(name="theirs")})
    body = {"pipeline": "theirs", "name": "event"}
    with pytest.raises(NotFound, match="no folder"):
        pattern = {"folder": watched.folder, "pattern": "*"}
        await other.post("/pipeline-triggers", {**body, "kind": "file", **pattern})
    with pytest.raises(NotFound, match="no pipeline"):
        source = (await watched.user.get("/pipelines/prepare"))["id"]
        await other.post("/pipeline-triggers", {**body, "kind": "pipeline", "source": source})
    # When the folder is no longer shared, the trigger no longer runs the pipeline.
    await watched.api.share_folder("user", watched.folder, "user2")
    made = await other.post("/pipeline-triggers", {**body, "kind": "file", **pattern})
    await watched.user.delete(f"/vfolders/{watched.folder}/grants/user2")
    watched.write("in/a.csv")
    await watched.search()
    assert "no folder" in (await other.get(f"/pipeline-triggers/{made['id']}"))["last_message"]
    assert (await other.get("/pipeline-runs"))["items"] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "file", "pattern": "*"},
        {"kind": "file", "folder": "inbox"},
        {"kind": "file", "folder": "inbox", "pattern": "../*"},
        {"kind": "file", "folder": "inbox", "pattern": "*", "source": "prepare"},
        {"kind": "file", "folder": "inbox", "pattern": "*", "parameters": {"source": "$RUN"}},
        {"kind": "file", "folder": "inbox", "pattern": "*", "parameters": {"other": "$FILE"}},
        {"kind": "pipeline"},
        {"kind": "pipeline", "source": "prepare", "folder": "inbox"},
        {"folder": "inbox"},
        {"parameters": {"source": "x"}},
        {"kind": "mail"},
    ],
)
async def test_invalid_triggers_are_refused(watched: Watched, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await watched.create(**fields)


async def test_only_webhooks_have_a_secret(watched: Watched) -> None:
    made = await watched.watch("*")
    assert made["secret"] is None
    with pytest.raises(Conflict, match="it has no secret"):
        await watched.user.post(f"/pipeline-triggers/{made['id']}/secret", {})
    with pytest.raises(BaiError, match="no such trigger"):
        await watched.user.post(f"/pipeline-triggers/{made['id']}/calls", {})


async def test_folder_with_too_many_files_is_refused(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.manager.pipelines.triggers.MAX_SCANNED", 1)
    for name in ("a", "b"):
        watched.write(f"in/{name}")
    with pytest.raises(TooLarge, match="more than 1 entries"):
        await watched.watch()


async def kill_repeatedly(
    watched: Watched,
    step: Callable[[PipelineTriggerRunner], Awaitable[None]],
    prepare: Callable[[int], Awaitable[None]],
) -> int:
    """Kill the manager before each statement of a step; return the number of events."""
    for number in itertools.count(1, 3):
        await prepare(number)
        was_killed = False
        try:
            with killed_before(number):
                await step(watched.new_loops())
        except KilledError:
            was_killed = True
        await step(watched.new_loops())
        events = (number - 1) // 3 + 1
        page = await watched.user.get("/pipeline-runs", pipeline="train", limit=1)
        assert page["total"] == events
        if not was_killed:
            return events
    raise AssertionError


@pytest.mark.both_databases
async def test_kills_neither_lose_nor_repeat_a_file(watched: Watched) -> None:
    await watched.watch()

    async def write(number: int) -> None:
        watched.write(f"in/{number}.csv")

    async def step(loops: PipelineTriggerRunner) -> None:
        for _ in range(2):
            await loops.search_folders()

    assert await kill_repeatedly(watched, step, write) > 4


@pytest.mark.both_databases
async def test_kills_neither_lose_nor_repeat_an_end(watched: Watched) -> None:
    await watched.create(kind="pipeline", source="prepare")

    async def end(number: int) -> None:
        await watched.end(await watched.run("prepare"), is_approved=True)

    assert await kill_repeatedly(watched, PipelineTriggerRunner.process_runs, end) > 4
