"""Pipelines that Python code defines and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from bai_services.core.pipelines.definition import Cache, ParameterType
from bai_services.pipelines import PipelineBuilder
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .test_pipelines import run_task, wait_for_tasks


async def test_pipeline_is_built_run_and_awaited(api: Api, agent: FakeAgent, user: Client) -> None:
    builder = PipelineBuilder("built", resources={"cpu": "1", "mem": "1g"}, environ={"A": "b"})
    builder.parameter("epochs", default=3)
    builder.parameter("rates", ParameterType.LIST, default=["0.1", "0.2"])
    prepare = builder.command("prepare", "make data", outputs=["data"], cache=Cache(parameters=()))
    more = builder.condition("more", "epochs", ">", 1)
    fit = builder.command(
        "fit", "make", needs=[prepare, more], for_each=["a"], retries=2, priority=3
    )
    builder.approval("check", needs=[fit])
    assert [task.name for task in builder.definition.tasks] == [prepare, more, fit, "check"]
    run = await builder.run(user, epochs=5)
    changes: list[Mapping[str, Any]] = []
    waiting = asyncio.create_task(run.wait(changes.append))
    with pytest.raises(NotFound, match="no session of the task check"):
        await run.log("check")
    await run_task(api, agent, user, run.id, prepare, 0)
    assert await run.log(prepare) == ""
    await run_task(api, agent, user, run.id, fit, 0)
    await wait_for_tasks(user, run.id, check="awaiting-approval")
    await run.approve("check")
    detail = await waiting
    assert detail["run"]["parameters"] == {"epochs": 5, "rates": ["0.1", "0.2"]}
    assert changes[-1] == detail
    # A pipeline with the same name becomes a new version.
    builder.notebook("report", "report.ipynb", needs=["check"], secrets={"KEY": "TOKEN"})
    builder.sub_pipeline("publish", "other", parameters={"epochs": "$epochs"})
    parameters = {task.name: task.parameters for task in builder.definition.tasks}
    assert parameters["publish"] == {"epochs": "$epochs"}
    assert (await builder.save(user))["version"] == 2


async def test_problems_of_a_run_are_named(api: Api, agent: FakeAgent, user: Client) -> None:
    builder = PipelineBuilder("rejected")
    builder.approval("check")
    run = await builder.run(user)
    await wait_for_tasks(user, run.id, check="awaiting-approval")
    await run.approve("check", is_approved=False)
    with pytest.raises(Conflict, match=r"is failed: check: "):
        await run.wait()
    await run.resume()
    await run.cancel()
    with pytest.raises(Conflict, match="is cancelled"):
        await run.wait()


def test_mistake_in_a_definition_is_named() -> None:
    builder = PipelineBuilder("wrong")
    builder.command("a", "x", needs=["b"])
    with pytest.raises(InvalidRequest, match="needs 'b', which is not a task"):
        _ = builder.definition
    with pytest.raises(TypeError, match="unknown settings: imag"):
        builder.command("c", "x", imag="python")
