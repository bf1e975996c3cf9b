"""Work items of one kernel are executed one after the other."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any, cast

from bai_services.agent.kernels import Task
from bai_services.agent.work import WorkExecutor
from tests.testbed.wait import wait_until_async


class Recorder(WorkExecutor):
    """Records the begin and the end of each item. A stop ends when ``is_released`` is set."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.is_released = asyncio.Event()

        async def deliver(report: Any) -> None:
            self.steps.append(f"{report['work_id']} {report['state']}")

        none = cast("Any", None)
        link = cast("Any", SimpleNamespace(deliver=deliver))
        launches = SimpleNamespace(launch=none, terminate=none, on_removable=lambda remove: None)
        fence = cast("Any", SimpleNamespace(on_fenced=lambda stop: None))
        folders = cast("Any", SimpleNamespace(all=lambda: [], find=lambda name: None))
        parts = (none, none, folders, none, none, none)
        super().__init__(link, *parts, cast("Any", launches), fence)

    async def _stop(self, task: Task) -> dict[str, Any]:
        self.steps.append(f"{task.id} begins")
        await self.is_released.wait()
        return {}

    async def _prepare(self, task: Task) -> dict[str, Any]:
        self.steps.append(f"{task.id} begins")
        return {}


def task(kind: str, kernel_id: str) -> Task:
    return Task(kind, kind, str(uuid.uuid4()), kernel_id)


async def test_session_is_prepared_after_its_last_run_is_removed() -> None:
    executor, kernel_id = Recorder(), str(uuid.uuid4())
    stop = asyncio.create_task(executor.execute(task("stop", kernel_id)))
    await wait_until_async(lambda: executor.steps, 10, "the stop to begin")
    prepare = asyncio.create_task(executor.execute(task("prepare", kernel_id)))
    await executor.execute(task("prepare", str(uuid.uuid4())))
    assert executor.steps == ["stop begins", "prepare begins", "prepare done"]
    executor.is_released.set()
    await asyncio.gather(stop, prepare)
    assert executor.steps[3:] == ["stop done", "prepare begins", "prepare done"]
