"""`bai pipeline`: define and run pipelines."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.live import Live
from rich.table import Table

from bai_services.client import Client
from bai_services.core.errors import Conflict, InvalidRequest, NotFound
from bai_services.core.pipelines.conversion import Format
from bai_services.core.pipelines.conversion import convert as convert_pipeline
from bai_services.core.pipelines.parsing import MAX_BYTES
from bai_services.core.pipelines.results import RunApp
from bai_services.core.pipelines.states import RUN_ENDED, TaskStatus
from bai_services.core.pipelines.subpipelines import nested
from bai_services.core.sessions.lifecycle import Status

from .. import output
from ..command import (
    Choice,
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    parse_pairs,
    segment,
)
from ..sessions.live_output import follow_log
from ..sessions.waiting import wait_for_status
from .schedules import schedule
from .templates import template
from .triggers import trigger

_COLUMNS = ("name", "tasks", "version", "project", "last_run_status", "last_run_at", "id")
_RUN_COLUMNS = (
    "id", "pipeline", "status", "progress", "cause", "created_at", "started_at", "ended_at",
)  # fmt: skip
_TASK_COLUMNS = ("task", "item", "status", "attempt", "needs", "started_at", "ended_at", "message")
_ARTIFACT_COLUMNS = ("task", "path", "type", "size", "modified_at")
_Command = TypeVar("_Command", bound=Callable[..., Any])
_POLL_SECONDS = 1.0
MAX_COMPARED = 50
_COLOURS = {
    TaskStatus.SUCCEEDED: "green",
    TaskStatus.BYPASSED: "green",
    TaskStatus.RUNNING: "cyan",
    TaskStatus.QUEUED: "blue",
    TaskStatus.RETRYING: "yellow",
    TaskStatus.APPROVAL: "yellow",
    TaskStatus.FAILED: "red",
    TaskStatus.BLOCKED: "red",
    TaskStatus.CANCELLED: "magenta",
}
_file_argument = click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)


def _format_option(name: str) -> Callable[[_Command], _Command]:
    return click.option(
        name,
        "target",
        type=Choice([each.value for each in Format]),
        default=Format.BAI.value,
        help="Format: bai (the default), elyra or fasttrack.",
    )


_accept_files = click.option(
    "--accept-files",
    "accepts_files",
    is_flag=True,
    help="Accept files that users with a lower role can change.",
)


@command_group()
def pipeline() -> None:
    """Define and run pipelines: tasks that depend on each other.

    Each task runs as a batch session. A pipeline is a YAML file; `bai pipeline schema` prints its
    JSON schema.
    """


pipeline.add_command(schedule)
pipeline.add_command(trigger)
pipeline.add_command(template)


@pipeline.command(
    epilog=example(
        "bai pipeline create train.yaml", "bai pipeline create --template compare-models"
    )
)
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option("--template", metavar="NAME", help="Use this template instead of a file.")
@click.option("--project", metavar="NAME", help="Project in which the tasks run.")
@click.option(
    "--project-owned", is_flag=True, help="The pipeline belongs to the project; members may run it."
)
@click.option("--replace", is_flag=True, help="Change an existing pipeline with the same name.")
@json_option
@connected
async def create(
    connection: Connection,
    file: Path | None,
    *,
    template: str | None,
    project: str | None,
    project_owned: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """Create a pipeline from a YAML file, or from a template (`bai pipeline template list`)."""
    if (file is None) == (template is None):
        raise click.UsageError("give either a file or --template")
    if file is not None:
        text = _read(file)
    else:
        found = await connection.client.get(f"/pipeline-templates/{segment(template or '')}")
        text = found["definition"]
    body: dict[str, Any] = {"definition": text} | ({"project": project} if project else {})
    if project_owned:
        body["is_project_owned"] = True
    if replace:
        check = await _checked(connection.client, text)
        try:
            made = await connection.client.patch(_path(check["name"]), {"definition": text})
        except NotFound:
            made = await connection.client.post("/pipelines", body)
    else:
        made = await connection.client.post("/pipelines", body)
    text = f"pipeline {made['name']} saved with {made['tasks']} tasks (version {made['version']})"
    output.print_done(text, made, as_json=as_json)


@pipeline.command(
    epilog=example(
        "bai pipeline convert train.pipeline > train.yaml",
        "bai pipeline convert train.yaml --to elyra > train.pipeline",
    )
)
@_file_argument
@_format_option("--to")
@json_option
def convert(file: Path, *, target: str, as_json: bool) -> None:
    """Print a pipeline of Elyra (`*.pipeline`) or FastTrack as YAML for `bai pipeline create`, or a
    pipeline in one of these formats.

    From Elyra, notebooks, Python and R scripts are converted. Copy them and the files that they
    need into the folder of the pipeline.
    """
    _print_definition(convert_pipeline(_read(file), file.stem, Format(target)), as_json=as_json)


@pipeline.command("import", epilog=example("bai pipeline import train.pipeline"))
@_file_argument
@click.option("--project", metavar="NAME", help="Project in which the tasks run.")
@json_option
@connected
async def import_(
    connection: Connection, file: Path, *, project: str | None, as_json: bool
) -> None:
    """Create a pipeline from a file of Elyra (`*.pipeline`) or FastTrack."""
    text = convert_pipeline(_read(file), file.stem, Format.BAI)
    body = {"definition": text} | ({"project": project} if project else {})
    made = await connection.client.post("/pipelines", body)
    done = f"pipeline {made['name']} created with {made['tasks']} tasks"
    output.print_done(done, made, as_json=as_json)


@pipeline.command(epilog=example("bai pipeline validate train.yaml"))
@_file_argument
@json_option
@connected
async def validate(connection: Connection, file: Path, *, as_json: bool) -> None:
    """Check a YAML file; nothing is stored."""
    check = await _checked(connection.client, _read(file))
    output.print_done(f"{file.name} is valid: {len(check['tasks'])} tasks", check, as_json=as_json)


@pipeline.command(epilog=example("bai pipeline schema > pipeline.schema.json"))
@json_option
@connected
async def schema(connection: Connection, *, as_json: bool) -> None:
    """Print the JSON schema of pipelines, for editors."""
    output.print_json((await connection.client.get("/pipeline-schema"))["json_schema"])


@pipeline.command("list", epilog=example("bai pipeline list"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List your pipelines."""
    page = await connection.client.get("/pipelines", **page_query(sort, limit, offset))
    output.print_page(page, _COLUMNS, as_json=as_json, empty="no pipelines")


@pipeline.command(epilog=example("bai pipeline info train"))
@click.argument("name")
@json_option
@connected
async def info(connection: Connection, name: str, *, as_json: bool) -> None:
    """Show a pipeline; NAME is a name or an id."""
    found = await connection.client.get(_path(name))
    if not as_json:
        del found["definition"]
        found["parameters"] = ", ".join(
            f"{each['name']} ({each['type']})" for each in found["parameters"]
        )
    output.print_fields(found, as_json=as_json)


@pipeline.command(
    epilog=example(
        "bai pipeline export train > train.yaml",
        "bai pipeline export train --format elyra > train.pipeline",
    )
)
@click.argument("name")
@click.option("--run", "is_run", is_flag=True, help="NAME is the id of a run: print its pipeline.")
@_format_option("--format")
@json_option
@connected
async def export(
    connection: Connection, name: str, *, is_run: bool, target: str, as_json: bool
) -> None:
    """Print the definition of a pipeline, or of a run."""
    found = await connection.client.get(_run_path(name) if is_run else _path(name))
    text = convert_pipeline(found["definition"], name, Format(target))
    _print_definition(text, as_json=as_json)


@pipeline.command(epilog=example("bai pipeline delete train"))
@click.argument("name")
@json_option
@connected
async def delete(connection: Connection, name: str, *, as_json: bool) -> None:
    """Delete a pipeline with its runs; its folder remains."""
    await connection.client.delete(_path(name))
    output.print_done(f"pipeline {name} deleted", {"name": name}, as_json=as_json)


@pipeline.command(
    epilog=example("bai pipeline run train", "bai pipeline run train -p epochs=3 --watch")
)
@click.argument("name")
@click.option(
    "-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter."
)
@_accept_files
@click.option("--watch", "is_watched", is_flag=True, help="Show the tasks until the run ends.")
@json_option
@connected
async def run(
    connection: Connection,
    name: str,
    *,
    parameters: tuple[str, ...],
    accepts_files: bool,
    is_watched: bool,
    as_json: bool,
) -> None:
    """Run a pipeline."""
    given = parse_pairs(parameters, "--parameter", "epochs=3")
    body = {"parameters": given, "accepts_files": accepts_files}
    made = await connection.client.post(f"{_path(name)}/runs", body)
    if is_watched:
        await _watch(connection.client, made["id"], as_json=as_json)
        return
    output.print_done(f"run {made['id']} of pipeline {name} created", made, as_json=as_json)


@pipeline.command(epilog=example("bai pipeline runs", "bai pipeline runs train"))
@click.argument("name", required=False)
@page_options
@json_option
@connected
async def runs(
    connection: Connection,
    name: str | None,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the runs of your pipelines; with NAME, only the runs of this pipeline."""
    query = page_query(sort, limit, offset)
    if name:
        query["pipeline_id"] = (await connection.client.get(_path(name)))["id"]
    page = await connection.client.get("/pipeline-runs", **query)
    if not as_json:
        for item in page["items"]:
            item["progress"] = _progress(item)
    output.print_page(page, _RUN_COLUMNS, as_json=as_json, empty="no runs")


@pipeline.command(epilog=example("bai pipeline watch 3f6a…"))
@click.argument("run_id", metavar="RUN")
@json_option
@connected
async def watch(connection: Connection, run_id: str, *, as_json: bool) -> None:
    """Show the tasks of a run until it ends. The command fails if the run does."""
    await _watch(connection.client, run_id, as_json=as_json)


@pipeline.command(epilog=example("bai pipeline logs 3f6a… train"))
@click.argument("run_id", metavar="RUN")
@click.argument("task")
@click.option("--index", type=click.IntRange(min=0), default=0, help="Number of a mapped task.")
@click.option("-f", "--follow", is_flag=True, help="Continue until the session ends.")
@json_option
@connected
async def logs(
    connection: Connection, run_id: str, task: str, *, index: int, follow: bool, as_json: bool
) -> None:
    """Print the output of a task."""
    if follow and as_json:
        raise click.UsageError("--follow cannot be combined with --json")
    detail = await connection.client.get(_run_path(run_id))
    found = [each for each in detail["task_runs"] if (each["task"], each["index"]) == (task, index)]
    if not found:
        names = ", ".join(dict.fromkeys(each["task"] for each in detail["task_runs"]))
        raise NotFound(f"the run has no task {task}; its tasks: {names}")
    session = found[0]["session"]
    if session is None:
        raise Conflict(f"task {task} is {found[0]['status']} and has no session yet")
    if follow:
        await follow_log(connection, session, {})
        return
    response = await connection.client.get(f"/sessions/{segment(session)}/logs")
    if as_json:
        output.print_json(response)
    else:
        output.print_log(response["log"])


@pipeline.command(epilog=example("bai pipeline artifacts 3f6a…"))
@click.argument("run_id", metavar="RUN")
@json_option
@connected
async def artifacts(connection: Connection, run_id: str, *, as_json: bool) -> None:
    """List the outputs and executed notebooks of a run, failed cells, and metrics.

    `bai vfolder download` downloads a file from the folder.
    """
    found = await connection.client.get(f"{_run_path(run_id)}/results")
    if as_json:
        output.print_json(found)
        return
    output.print_table(found["artifacts"], _ARTIFACT_COLUMNS, empty="no outputs")
    if found["notebook_errors"]:
        output.print_table(found["notebook_errors"], ("task", "cell", "error"))
    if found["metrics"] or found["metrics_problem"]:
        problem = {"problem": found["metrics_problem"]} if found["metrics_problem"] else {}
        output.print_fields({**found["metrics"], **problem}, as_json=False)


@pipeline.command("open", epilog=example("bai pipeline open 3f6a… tensorboard"))
@click.argument("run_id", metavar="RUN")
@click.argument("app", type=Choice([each.value for each in RunApp]))
@click.option("--no-browser", is_flag=True, help="Print the URL without opening a browser.")
@json_option
@connected
async def open_(
    connection: Connection, run_id: str, app: str, *, no_browser: bool, as_json: bool
) -> None:
    """Open TensorBoard or MLflow on the directory of a run.

    The app runs in a session of yours, which is used again until you stop it.
    """
    client = connection.client
    made = await client.post(f"{_run_path(run_id)}/apps", {"app": app})
    session = await client.get(f"/sessions/{segment(made['session'])}")
    session = await wait_for_status(client, session, Status.RUNNING, None)
    if session["status"] != Status.RUNNING:
        raise Conflict(f"session {made['name']} is {session['status']}: {session['status_info']}")
    address = connection.address(session["url"] + made["path"])
    output.print_done(address, {**made, "url": address}, as_json=as_json)
    if not (no_browser or as_json):
        await asyncio.to_thread(webbrowser.open, address)


@pipeline.command(epilog=example("bai pipeline compare 3f6a… 81c0…"))
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@json_option
@connected
async def compare(connection: Connection, run_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Compare runs by their parameters and metrics."""
    if len(run_ids) > MAX_COMPARED:
        raise click.UsageError(f"at most {MAX_COMPARED} runs can be compared")
    rows = []
    for run_id in run_ids:
        run_ = (await connection.client.get(_run_path(run_id)))["run"]
        results = await connection.client.get(f"{_run_path(run_id)}/results")
        rows.append({**run_, "metrics": results["metrics"]})
    if as_json:
        output.print_json(rows)
        return
    names = sorted({name for row in rows for name in row["parameters"]})
    metrics = sorted({name for row in rows for name in row["metrics"]})
    shown = [
        {
            **{name: row[name] for name in ("id", "status")},
            **{name: row["parameters"].get(name) for name in names},
            **{f"metric {name}": row["metrics"].get(name) for name in metrics},
        }
        for row in rows
    ]
    output.print_table(shown, tuple(shown[0]))


@pipeline.command(epilog=example("bai pipeline cancel 3f6a…"))
@click.argument("run_id", metavar="RUN")
@json_option
@connected
async def cancel(connection: Connection, run_id: str, *, as_json: bool) -> None:
    """Cancel a run; the sessions of its tasks end."""
    made = await connection.client.delete(_run_path(run_id))
    output.print_done(f"run {run_id} is {made['status']}", made, as_json=as_json)


@pipeline.command(epilog=example("bai pipeline resume 3f6a…"))
@click.argument("run_id", metavar="RUN")
@_accept_files
@json_option
@connected
async def resume(
    connection: Connection, run_id: str, *, accepts_files: bool, as_json: bool
) -> None:
    """Repeat the unsuccessful tasks of an ended run, and all tasks that depend on them."""
    body = {"accepts_files": accepts_files}
    made = await connection.client.post(f"{_run_path(run_id)}/resumption", body)
    output.print_done(f"run {run_id} resumed", made, as_json=as_json)


@pipeline.command(epilog=example("bai pipeline approve 3f6a… check"))
@click.argument("run_id", metavar="RUN")
@click.argument("task")
@click.option("--reject", "is_rejected", is_flag=True, help="Reject the task, which then fails.")
@json_option
@connected
async def approve(
    connection: Connection, run_id: str, task: str, *, is_rejected: bool, as_json: bool
) -> None:
    """Approve or reject a task that waits for an approval."""
    path = f"{_run_path(run_id)}/tasks/{segment(task)}/approval"
    made = await connection.client.post(path, {"is_approved": not is_rejected})
    text = "rejected" if is_rejected else "approved"
    output.print_done(f"task {task} {text}", made, as_json=as_json)


async def _watch(client: Client, run_id: str, *, as_json: bool) -> None:
    detail = await client.get(_run_path(run_id))
    with Live(console=output.progress_console(), auto_refresh=False) as live:
        while True:
            if not as_json:
                live.update(_table(detail), refresh=True)
            if detail["run"]["status"] in RUN_ENDED:
                break
            await asyncio.sleep(_POLL_SECONDS)
            detail = await client.get(_run_path(run_id))
    if as_json:
        output.print_json(detail)
    if detail["run"]["status"] != "succeeded":
        raise Conflict(f"the run is {detail['run']['status']}")


def _table(detail: Mapping[str, Any]) -> Table:
    run_ = detail["run"]
    table = Table(title=f"{run_['pipeline']}: {run_['status']}, {_progress(run_)}")
    for column in _TASK_COLUMNS:
        table.add_column(column)
    runs = detail["task_runs"]
    for index, label, depth in nested([each["task"] for each in runs]):
        each = runs[index]
        # The tasks of a sub-pipeline are below the task that contains them.
        shown = {**each, "task": "  " * depth + label, "needs": ", ".join(each["needs"])}
        if each["is_cached"]:
            shown["status"] = "cached"
        style = _COLOURS.get(TaskStatus(each["status"]), "dim")
        table.add_row(*(output.cell(shown[column]) for column in _TASK_COLUMNS), style=style)
    return table


def _progress(item: Mapping[str, Any]) -> str:
    ended = ("succeeded", "bypassed", "skipped", "failed", "blocked", "cancelled")
    done = sum(item["tasks_by_status"].get(status, 0) for status in ended)
    return f"{done}/{item['tasks']} tasks"


async def _checked(client: Client, text: str) -> dict[str, Any]:
    check = await client.post("/pipeline-checks", {"definition": text})
    if not check["is_valid"]:
        raise InvalidRequest(check["problem"], field="definition", line=check["line"])
    return dict(check)


def _print_definition(text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"definition": text})
    else:
        output.print_log(text)


def _read(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as stream:
        text = stream.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise InvalidRequest(f"{file.name} has more than {MAX_BYTES} characters")
    return text


def _path(name: str) -> str:
    return f"/pipelines/{segment(name)}"


def _run_path(run_id: str) -> str:
    return f"/pipeline-runs/{segment(run_id)}"
