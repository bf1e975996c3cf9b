"""`bai pipeline schedule`: times at which pipelines run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from bai_services.client import Client
from bai_services.core.errors import NotFound
from bai_services.core.pipelines.schedules import (
    MAX_EVERY_MINUTES,
    MIN_EVERY_MINUTES,
    CatchUp,
)

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

_COLUMNS = (
    "pipeline", "name", "start", "every_minutes", "time_zone", "is_paused", "next_start",
    "last_start_at", "last_message", "id",
)  # fmt: skip
_FIELDS = ("start", "every_minutes", "time_zone", "catch_up")

_Command = TypeVar("_Command", bound=Callable[..., Any])


@command_group()
def schedule() -> None:
    """Run pipelines at set times.

    A time is a rule: days and times ('mon-fri 08:00', 'daily 09:30,14:00') or a cron expression
    ('0 8 * * 1-5'); or an interval.
    """


def _time_options(command: _Command) -> _Command:
    options = (
        click.option("--start", metavar="RULE", help="When to run the pipeline."),
        click.option(
            "--every",
            "every_minutes",
            type=click.IntRange(MIN_EVERY_MINUTES, MAX_EVERY_MINUTES),
            metavar="MINUTES",
            help="Run the pipeline at this interval, which begins now.",
        ),
        click.option(
            "--time-zone", metavar="NAME", help="Time zone, such as Asia/Seoul. Default: UTC."
        ),
        click.option(
            "--catch-up",
            type=Choice([each.value for each in CatchUp]),
            help="If starts were missed because no manager ran: skip them, run once for the last "
            "(the default), or run for all.",
        ),
        click.option(
            "-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE",
            help="A parameter.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@schedule.command(
    epilog=example(
        "bai pipeline schedule create train nightly --start 'daily 02:00' --time-zone Asia/Seoul",
        "bai pipeline schedule create train hourly --every 60 -p epochs=3",
    )
)
@click.argument("pipeline")
@click.argument("name")
@_time_options
@json_option
@connected
async def create(
    connection: Connection, pipeline: str, name: str, *, as_json: bool, **options: Any
) -> None:
    """Create a schedule of a pipeline."""
    body = {"pipeline": pipeline, "name": name, **_given(options)}
    made = await connection.client.post("/pipeline-schedules", body)
    output.print_done(
        f"schedule {name} of pipeline {pipeline} created; next start: {_first(made)}",
        made,
        as_json=as_json,
    )


@schedule.command("list", epilog=example("bai pipeline schedule list"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the schedules of your pipelines with their next start."""
    page = await connection.client.get("/pipeline-schedules", **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["next_start"] = next(iter(item["next_starts"]), None)
    output.print_page(page, _COLUMNS, as_json=as_json, empty="no schedules")


@schedule.command(
    "set", epilog=example("bai pipeline schedule set train nightly --start 'daily 03:00'")
)
@click.argument("pipeline")
@click.argument("name")
@_time_options
@json_option
@connected
async def set_(
    connection: Connection, pipeline: str, name: str, *, as_json: bool, **options: Any
) -> None:
    """Change a schedule. A rule replaces an interval, and an interval replaces a rule."""
    body = _given(options)
    if not body:
        raise click.UsageError("no option is given, so there is nothing to change")
    for field, other in (("start", "every_minutes"), ("every_minutes", "start")):
        if field in body:
            body.setdefault(other, None)
    made = await _change(connection.client, pipeline, name, body)
    output.print_done(f"schedule {name} changed; next start: {_first(made)}", made, as_json=as_json)


@schedule.command(epilog=example("bai pipeline schedule pause train nightly"))
@click.argument("pipeline")
@click.argument("name")
@json_option
@connected
async def pause(connection: Connection, pipeline: str, name: str, *, as_json: bool) -> None:
    """Pause a schedule, which then creates no runs."""
    made = await _change(connection.client, pipeline, name, {"is_paused": True})
    output.print_done(f"schedule {name} paused", made, as_json=as_json)


@schedule.command(epilog=example("bai pipeline schedule resume train nightly"))
@click.argument("pipeline")
@click.argument("name")
@json_option
@connected
async def resume(connection: Connection, pipeline: str, name: str, *, as_json: bool) -> None:
    """Resume a paused schedule."""
    made = await _change(connection.client, pipeline, name, {"is_paused": False})
    output.print_done(f"schedule {name} resumed; next start: {_first(made)}", made, as_json=as_json)


@schedule.command(epilog=example("bai pipeline schedule delete train nightly"))
@click.argument("pipeline")
@click.argument("name")
@json_option
@connected
async def delete(connection: Connection, pipeline: str, name: str, *, as_json: bool) -> None:
    """Delete a schedule; its runs continue."""
    await connection.client.delete(await _path(connection.client, pipeline, name))
    output.print_done(f"schedule {name} deleted", {"name": name}, as_json=as_json)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    given = {name: options[name] for name in _FIELDS if options.get(name) is not None}
    if options["parameters"]:
        given["parameters"] = parse_pairs(options["parameters"], "--parameter", "epochs=3")
    return given


def _first(schedule_: dict[str, Any]) -> str:
    return str((schedule_["next_starts"] or ["never"])[0])


async def _change(
    client: Client, pipeline: str, name: str, changes: dict[str, Any]
) -> dict[str, Any]:
    return dict(await client.patch(await _path(client, pipeline, name), changes))


async def _path(client: Client, pipeline: str, name: str) -> str:
    """Return the path of a schedule of a pipeline; ``pipeline`` is a name or an id."""
    pipeline_id = (await client.get(f"/pipelines/{segment(pipeline)}"))["id"]
    page = await client.get("/pipeline-schedules", pipeline_id=pipeline_id, name=name)
    if not page["items"]:
        raise NotFound(f"pipeline {pipeline} has no schedule {name}")
    return f"/pipeline-schedules/{segment(page['items'][0]['id'])}"
