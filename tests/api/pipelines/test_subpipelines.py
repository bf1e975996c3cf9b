"""Runs with sub-pipelines, and secrets of tasks."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.db.tables.pipelines import pipeline_runs
from bai_services.db.tables.sessions import sessions
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .test_pipelines import (
    APPROVAL,
    create,
    run_task,
    text_of,
    wait_for_run,
    wait_for_session,
    wait_for_tasks,
)

SECRET = "s3cret-value"
CHILD = """\
parameters: [{name: level, type: integer}]
tasks:
- {name: check, kind: approval}
- {name: train, command: x, needs: [check]}
"""
PARENT = """\
parameters: [{name: depth, type: integer, default: 7}]
tasks:
- {name: fit, kind: pipeline, pipeline: child, parameters: {level: $depth}}
- {name: report, command: y, needs: [fit]}
"""


async def test_tasks_of_a_sub_pipeline_run(api: Api, agent: FakeAgent, user: Client) -> None:
    child = await create(user, "child", CHILD)
    await create(user, "parent", PARENT)
    key = (await user.post("/pipelines/parent/runs", {}))["id"]
    # The run keeps the sub-pipeline as it was.
    await user.patch("/pipelines/child", {"definition": text_of("child", APPROVAL)})
    await wait_for_tasks(user, key, **{"fit/check": "awaiting-approval", "fit/train": "waiting"})
    await user.post(f"/pipeline-runs/{key}/tasks/fit%2Fcheck/approval", {"is_approved": True})
    session = await user.get(f"/sessions/{await wait_for_session(user, key, 'fit/train')}")
    assert session["environ"]["PARAM_LEVEL"] == "7"
    assert session["environ"]["PIPELINE_DIRECTORY"] == f"/pipeline/runs/{key}/fit"
    await run_task(api, agent, user, key, "fit/train", 0)
    await run_task(api, agent, user, key, "report", 0)
    detail = await wait_for_run(user, key, "succeeded")
    kinds = {each["task"]: (each["kind"], each["needs"]) for each in detail["task_runs"]}
    assert kinds["fit"] == ("pipeline", ["fit/train"])
    # A second run has the changed sub-pipeline.
    with pytest.raises(InvalidRequest, match="task fit: there is no parameter 'level'"):
        await user.post("/pipelines/parent/runs", {})
    await user.delete(f"/pipelines/{child['id']}")
    with pytest.raises(NotFound, match="no pipeline 'child'"):
        await user.post("/pipelines/parent/runs", {})


async def test_recursion_is_refused(agent: FakeAgent, user: Client) -> None:
    call = "tasks:\n- {{name: a, kind: pipeline, pipeline: {}}}\n"
    await create(user, "one", call.format("two"))
    await create(user, "two", call.format("one"))
    with pytest.raises(InvalidRequest, match="pipeline one contains itself"):
        await user.post("/pipelines/one/runs", {})
    for level in range(4):
        await create(user, f"level-{level}", call.format(f"level-{level + 1}"))
    await create(user, "level-4", APPROVAL)
    with pytest.raises(InvalidRequest, match="in at most 3 levels"):
        await user.post("/pipelines/level-0/runs", {})
    await user.post("/pipelines/level-1/runs", {})


@pytest.mark.both_databases
async def test_secret_is_referred_to_by_name(api: Api, agent: FakeAgent, user: Client) -> None:
    tasks = "tasks:\n- {name: one, command: x, secrets: {TOKEN: HUB_TOKEN}}\n"
    await create(user, "secretive", tasks)
    key = (await user.post("/pipelines/secretive/runs", {}))["id"]
    detail = await wait_for_run(user, key, "failed")
    message = "there is no secret 'HUB_TOKEN': neither you nor the project has it"
    assert detail["task_runs"][0]["message"] == message
    await user.put("/me/environ/HUB_TOKEN", {"value": SECRET, "is_secret": True})
    key = (await user.post("/pipelines/secretive/runs", {}))["id"]
    session = await wait_for_session(user, key, "one")
    assert (await user.get(f"/sessions/{session}"))["environ"]["TOKEN"] == "********"
    async with api.world.manager.database.read() as tx:
        stored = [
            *(await tx.execute(sa.select(pipeline_runs).where(pipeline_runs.c.id == key))).all(),
            *(await tx.execute(sa.select(sessions).where(sessions.c.id == session))).all(),
        ]
    assert len(stored) == 2
    assert SECRET not in repr(stored)
