"""Define and run pipelines from Python, for example in a notebook.

pipeline = PipelineBuilder("train", image="python", resources={"cpu": "1", "mem": "2g"})
pipeline.parameter("epochs", default=3)
prepare = pipeline.command("prepare", "python /pipeline/prepare.py", outputs=["data.csv"])
pipeline.command("fit", 'python /pipeline/fit.py "$PARAM_EPOCHS"', needs=[prepare])
async with Client(url, Token(token)) as client:
    run = await pipeline.run(client, epochs=5)
    await run.wait()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from .client import Client
from .core.errors import Conflict, NotFound
from .core.pipelines.definition import (
    Cache,
    Condition,
    ForEach,
    Operator,
    Parameter,
    ParameterType,
    PipelineDefinition,
    RunIf,
    Task,
    TaskKind,
    Value,
)
from .core.pipelines.parsing import parse_pipeline
from .core.pipelines.schema import PIPELINE_SCHEMA
from .core.pipelines.states import RUN_ENDED, RunStatus
from .core.pipelines.writing import write_pipeline

_POLL_SECONDS = 1.0


class PipelineBuilder:
    """Builds the definition of a pipeline, task by task.

    ``settings`` are the defaults of all tasks, with the names of the YAML: ``image``, ``preset``,
    ``resources``, ``environ``, ``mounts``, ``resource_group`` and so on. The methods that add a
    task return its name, for ``needs`` of other tasks.
    """

    def __init__(
        self, name: str, *, description: str = "", folder: str = "", **settings: Any
    ) -> None:
        self._definition = PipelineDefinition(
            name, description=description, folder=folder, settings=_checked(settings)
        )

    @property
    def definition(self) -> PipelineDefinition:
        """The definition.

        Raises
        ------
        InvalidRequest
            If it is not valid.
        """
        return parse_pipeline(self.to_yaml())

    def to_yaml(self) -> str:
        return write_pipeline(self._definition)

    def parameter(
        self,
        name: str,
        type: ParameterType | None = None,
        *,
        default: Value | None = None,
        description: str = "",
    ) -> str:
        """Declare a parameter; without ``type``, it has the type of ``default``."""
        added = Parameter(name, type or _type_of(default), default, description)
        self._definition = replace(
            self._definition, parameters=(*self._definition.parameters, added)
        )
        return name

    def command(self, name: str, command: str, **options: Any) -> str:
        """Add a task that runs shell code; ``options`` as for ``task``."""
        return self.task(name, TaskKind.COMMAND, command=command, **options)

    def notebook(self, name: str, notebook: str, **options: Any) -> str:
        """Add a task that runs a notebook of the pipeline's folder."""
        return self.task(name, TaskKind.NOTEBOOK, notebook=notebook, **options)

    def approval(self, name: str, **options: Any) -> str:
        """Add a task that waits until a user approves it."""
        return self.task(name, TaskKind.APPROVAL, **options)

    def condition(
        self, name: str, parameter: str, operator: str, value: Value, **options: Any
    ) -> str:
        """Add a task that succeeds if a comparison such as ``PARAMETER >= VALUE`` is true."""
        compared = Condition(parameter, Operator(operator), value)
        return self.task(name, TaskKind.CONDITION, condition=compared, **options)

    def sub_pipeline(
        self,
        name: str,
        pipeline: str,
        *,
        parameters: Mapping[str, Value] | None = None,
        **options: Any,
    ) -> str:
        """Add a task that runs the tasks of another pipeline; in ``parameters``, the value
        ``$NAME`` stands for the parameter NAME of this pipeline.
        """
        return self.task(
            name, TaskKind.PIPELINE, pipeline=pipeline, parameters=parameters, **options
        )

    def task(
        self,
        name: str,
        kind: TaskKind,
        *,
        command: str = "",
        notebook: str = "",
        condition: Condition | None = None,
        description: str = "",
        needs: Sequence[str] = (),
        run_if: RunIf | str = RunIf.SUCCESS,
        for_each: ForEach | Sequence[str] | None = None,
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
        retries: int = 0,
        retry_delay_seconds: int = 10,
        timeout_seconds: int | None = None,
        continue_on_failure: bool = False,
        skip: bool = False,
        cache: Cache | bool = False,
        pipeline: str = "",
        parameters: Mapping[str, Value] | None = None,
        **settings: Any,
    ) -> str:
        """Add a task; ``settings`` replace or complete the settings of the pipeline.

        ``for_each``: the values themselves, or ``ForEach`` for a parameter.
        """
        if for_each is not None and not isinstance(for_each, ForEach):
            for_each = ForEach(values=tuple(for_each))
        if isinstance(cache, Cache):
            cached: Cache | None = cache
        else:
            cached = Cache() if cache else None
        added = Task(
            name=name,
            kind=kind,
            description=description,
            command=command,
            notebook=notebook,
            condition=condition,
            needs=tuple(needs),
            run_if=RunIf(run_if),
            for_each=for_each,
            settings=_checked(settings),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            retries=retries,
            retry_delay_seconds=retry_delay_seconds,
            timeout_seconds=timeout_seconds,
            continue_on_failure=continue_on_failure,
            skip=skip,
            cache=cached,
            pipeline=pipeline,
            parameters=parameters,
        )
        self._definition = replace(self._definition, tasks=(*self._definition.tasks, added))
        return name

    async def save(self, client: Client, *, project: str = "") -> Mapping[str, Any]:
        """Store the pipeline, as a new version if it exists; return it."""
        text = self.to_yaml()
        try:
            return dict(await client.patch(self._path, {"definition": text}))
        except NotFound:
            body = {"definition": text} | ({"project": project} if project else {})
            return dict(await client.post("/pipelines", body))

    async def run(self, client: Client, **parameters: Value) -> Run:
        """Store the pipeline, and run it."""
        await self.save(client)
        made = await client.post(f"{self._path}/runs", {"parameters": parameters})
        return Run(client, str(made["id"]))

    @property
    def _path(self) -> str:
        return f"/pipelines/{quote(self._definition.name, safe='')}"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a pipeline."""

    client: Client
    id: str

    async def detail(self) -> Mapping[str, Any]:
        """Return the run and its task runs (``GET /pipeline-runs/{key}``)."""
        return dict(await self.client.get(self._path))

    async def wait(
        self, on_change: Callable[[Mapping[str, Any]], None] = lambda detail: None
    ) -> Mapping[str, Any]:
        """Wait until the run ends; return it. ``on_change`` is called for each changed state.

        Raises
        ------
        Conflict
            If the run fails or is cancelled.
        """
        last: Mapping[str, Any] = {}
        while True:
            detail = await self.detail()
            if detail != last:
                on_change(detail)
            last, status = detail, RunStatus(detail["run"]["status"])
            if status in RUN_ENDED:
                break
            await asyncio.sleep(_POLL_SECONDS)
        if status is not RunStatus.SUCCEEDED:
            raise Conflict(f"run {self.id} is {status}: {_problems(detail)}")
        return detail

    async def log(self, task: str, index: int = 0) -> str:
        """Return the output of the last attempt of a task.

        Raises
        ------
        NotFound
            If the run has no such task, or the task has no session yet.
        """
        for each in (await self.detail())["task_runs"]:
            if (each["task"], each["index"]) == (task, index) and each["session"]:
                found = await self.client.get(f"/sessions/{quote(each['session'], safe='')}/logs")
                return str(found["log"])
        raise NotFound(f"run {self.id} has no session of the task {task}")

    async def approve(self, task: str, *, is_approved: bool = True) -> None:
        """Approve or reject a task."""
        path = f"{self._path}/tasks/{quote(task, safe='')}/approval"
        await self.client.post(path, {"is_approved": is_approved})

    async def cancel(self) -> None:
        await self.client.delete(self._path)

    async def resume(self) -> None:
        """Repeat the unsuccessful tasks of an ended run, and all tasks after them."""
        await self.client.post(f"{self._path}/resumption", {})

    @property
    def _path(self) -> str:
        return f"/pipeline-runs/{quote(self.id, safe='')}"


def _problems(detail: Mapping[str, Any]) -> str:
    failed = [each for each in detail["task_runs"] if each["status"] in ("failed", "cancelled")]
    return "; ".join(f"{each['task']}: {each['message'] or each['status']}" for each in failed[:5])


def _type_of(default: Value | None) -> ParameterType:
    for kind, types in (
        (ParameterType.BOOLEAN, bool),
        (ParameterType.INTEGER, int),
        (ParameterType.NUMBER, float),
        (ParameterType.LIST, list | tuple),
    ):
        if isinstance(default, types):
            return kind
    return ParameterType.TEXT


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings; a mount is a text such as ``data:/home/work/data:ro``.

    Raises
    ------
    TypeError
        If a name is unknown, as for other unknown arguments.
    """
    if unknown := settings.keys() - PIPELINE_SCHEMA["properties"]["defaults"]["properties"].keys():
        raise TypeError(f"unknown settings: {', '.join(sorted(unknown))}")
    return dict(settings)
