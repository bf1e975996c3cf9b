"""Session requests of task runs."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..folders.vfolders import Permission
from ..sessions.lifecycle import SessionType
from .caching import lookup, storing
from .definition import Cache, Task, TaskKind, Value
from .parameters import items_of, values_of, variable
from .settings import merged
from .states import Plan, TaskRun
from .subpipelines import SEPARATOR

MOUNT_PATH = "/pipeline"
PARAMETER_PREFIX = "PARAM_"
# The variable of a task's session with the id of its run.
RUN_VARIABLE = "PIPELINE_RUN"
# Resources of a session that shows a run in an app; MLflow needs more than 1 GiB.
APP_RESOURCES = {"cpu": "1", "mem": "2g"}
_NAMESPACE = uuid.UUID("6d1f0c3e-52a1-4c1e-9d0e-7e0a9b7c5f10")
_PIPELINE_CHARACTERS = 20
_TASK_CHARACTERS = 24
_ID_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class RunContext:
    """Values that all sessions of a run share."""

    run_id: str
    pipeline: str
    project_id: str
    folder: str


def session_id_of(run_id: str, run: TaskRun) -> str:
    """Return the id of an attempt's session, which is also its idempotency key."""
    return str(uuid.uuid5(_NAMESPACE, f"{run_id}/{run.task}/{run.index}/{run.attempt}"))


def session_request(
    plan: Plan, run: TaskRun, context: RunContext, secrets: Mapping[str, str]
) -> dict[str, Any]:
    """Return the request for the session of an attempt; ``secrets`` are the values by name."""
    task = plan.tasks[run.task]
    settings = merged(plan.definition.settings, task.settings)
    own_secrets = settings.pop("secrets", {})
    environ = settings.get("environ", {})
    folder = {"vfolder": context.folder, "path": MOUNT_PATH, "permission": Permission.RW}
    session_id = session_id_of(context.run_id, run)
    pipeline = context.pipeline[:_PIPELINE_CHARACTERS].rstrip("-.")
    short = run.task.replace(SEPARATOR, "-")
    request = {
        **settings,
        "name": f"{pipeline}-{short[:_TASK_CHARACTERS]}-{session_id[:_ID_CHARACTERS]}",
        "project": context.project_id,
        "type": SessionType.BATCH,
        "mounts": [folder, *settings.get("mounts", ())],
        "environ": {**environ, **_environ(plan, task, run, context)},
        "startup_command": _command(plan, task, run, environ),
        "batch_timeout": task.timeout_seconds,
    }
    if own_secrets:
        request["environ"] |= {name: secrets[own_secrets[name]] for name in own_secrets}
        request["secret_environ"] = sorted(own_secrets)
    return request


def app_session_request(context: RunContext) -> dict[str, Any]:
    """Return the request for a session whose apps show the directory of a run.

    A user has at most one such session of a run at a time, because the name is computed from the
    run.
    """
    directory = f"{MOUNT_PATH}/{run_directory(context.run_id)}"
    pipeline = context.pipeline[:_PIPELINE_CHARACTERS].rstrip("-.")
    return {
        "name": f"{pipeline}-apps-{context.run_id[:_ID_CHARACTERS]}",
        "project": context.project_id,
        "type": SessionType.INTERACTIVE,
        "resources": APP_RESOURCES,
        "mounts": [{"vfolder": context.folder, "path": MOUNT_PATH}],
        "environ": {
            "BAI_TENSORBOARD_LOGDIR": directory,
            "BAI_MLFLOW_STORE": f"{directory}/mlflow",
        },
        "reuse": True,
    }


def secrets_of(plan: Plan, run: TaskRun) -> list[str]:
    """Return the names of the secrets that a task needs."""
    settings = merged(plan.definition.settings, plan.tasks[run.task].settings)
    return sorted(set(settings.get("secrets", {}).values()))


def _environ(plan: Plan, task: Task, run: TaskRun, context: RunContext) -> dict[str, str]:
    environ = {
        "PIPELINE": context.pipeline,
        RUN_VARIABLE: context.run_id,
        "PIPELINE_FOLDER": context.folder,
        "PIPELINE_TASK": task.name,
        "PIPELINE_ATTEMPT": str(run.attempt),
        "PIPELINE_DIRECTORY": f"{MOUNT_PATH}/{directory_of(context.run_id, task)}",
        "PIPELINE_RUN_DIRECTORY": f"{MOUNT_PATH}/{run_directory(context.run_id)}",
    }
    items = items_of(task, plan.parameters)
    if items is not None:
        environ |= {"PIPELINE_ITEM": items[run.index], "PIPELINE_ITEM_INDEX": str(run.index)}
    values = values_of(task, plan.parameters).items()
    return environ | {f"{PARAMETER_PREFIX}{name.upper()}": variable(v) for name, v in values}


def run_directory(run_id: str) -> str:
    """Return the path of a run in the folder of its pipeline."""
    return f"runs/{run_id}"


def directory_of(run_id: str, task: Task) -> str:
    """Return the path, in the folder of the pipeline, in which a task starts.

    The tasks of a sub-pipeline have a directory of their own.
    """
    outer = task.name.rpartition(SEPARATOR)[0]
    return f"{run_directory(run_id)}/{outer}" if outer else run_directory(run_id)


def executed_notebook(task: Task, index: int) -> str:
    """Return the name of an executed notebook in the directory of its task."""
    name = task.name.rpartition(SEPARATOR)[2]
    return f"{name}-{index}.ipynb" if task.for_each else f"{name}.ipynb"


def _command(plan: Plan, task: Task, run: TaskRun, environ: Mapping[str, str]) -> str:
    """Return a task's shell script, which checks inputs before the command and outputs after it."""
    command = task.command if task.kind is TaskKind.COMMAND else _papermill(plan, task, run)
    lines = ['mkdir -p -- "$PIPELINE_DIRECTORY" && cd -- "$PIPELINE_DIRECTORY" || exit 1']
    lines += [_check("input", path) for path in task.inputs]
    if task.cache is not None:
        values = {"environ": dict(environ), **_cached_values(plan, task, task.cache, run)}
        lines.append(lookup(task, task.cache, values, MOUNT_PATH))
    # A subshell: an exit in the command must not skip the check of the outputs.
    lines.append(f"(\n{command}\n) || exit $?")
    lines += [_check("output", path) for path in task.outputs]
    if task.cache is not None:
        items = items_of(task, plan.parameters) or ()
        lines.append(storing(task, len(items)))
    return "\n".join(lines)


def _cached_values(plan: Plan, task: Task, cache: Cache, run: TaskRun) -> dict[str, Any]:
    """Return the values for a cached command: parameters, and its value of ``for_each``."""
    values = values_of(task, plan.parameters)
    names = values if cache.parameters is None else cache.parameters
    items = items_of(task, plan.parameters)
    return {
        "parameters": {name: values[name] for name in names},
        "item": None if items is None else items[run.index],
    }


def _check(kind: str, path: str) -> str:
    message = shlex.quote(f"the {kind} {path} does not exist")
    return f"[ -e {shlex.quote(f'./{path}')} ] || {{ echo {message} >&2; exit 1; }}"


def _papermill(plan: Plan, task: Task, run: TaskRun) -> str:
    source = shlex.quote(f"{MOUNT_PATH}/{task.notebook}")
    result = executed_notebook(task, run.index)
    values: Mapping[str, Value] = values_of(task, plan.parameters)
    items = items_of(task, plan.parameters)
    if items is not None:
        values = {**values, "item": items[run.index], "item_index": run.index}
    given = shlex.quote(json.dumps(dict(values)))
    return f"papermill --log-output -y {given} {source} ./{result}"
