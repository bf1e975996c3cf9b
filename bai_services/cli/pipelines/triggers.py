"""`bai pipeline trigger`: signed requests, files and other pipelines that run pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from bai_services.client import Client
from bai_services.core.errors import NotFound
from bai_services.core.pipelines.triggers import RunResult, TriggerKind

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
    "pipeline", "name", "kind", "watched", "is_enabled", "last_call_at", "last_run_id",
    "last_message", "id",
)  # fmt: skip


@command_group()
def trigger() -> None:
    """Run pipelines by signed requests of other services, by files that appear in a folder, or
    after the runs of other pipelines.
    """


@trigger.command(
    epilog=example(
        "bai pipeline trigger create train push",
        "bai pipeline trigger create train data --folder inbox --pattern 'new/*.csv' "
        "-p path='$FILE'",
        "bai pipeline trigger create report trained --after train --result any -p status='$STATUS'",
    )
)
@click.argument("pipeline")
@click.argument("name")
@click.option(
    "--folder", metavar="NAME", help="Run the pipeline for each file that appears in this folder."
)
@click.option("--pattern", help="With --folder: paths of the files, such as 'new/*.csv'.")
@click.option(
    "--after",
    "source",
    metavar="PIPELINE",
    help="Run the pipeline after the runs of this pipeline.",
)
@click.option(
    "--result",
    type=Choice([each.value for each in RunResult]),
    help="With --after: the result of these runs. Default: success.",
)
@click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter. With --folder, $FILE is the path of the file; with --after, $RUN and "
    "$STATUS are the id and the status of the run.",
)
@json_option
@connected
async def create(
    connection: Connection,
    pipeline: str,
    name: str,
    *,
    folder: str | None,
    pattern: str | None,
    source: str | None,
    result: str | None,
    parameters: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a trigger: by default a webhook.

    For a webhook, print the path of its calls, and the secret of the signatures once.
    """
    body: dict[str, Any] = {"pipeline": pipeline, "name": name}
    given = {"folder": folder, "pattern": pattern, "source": source, "result": result}
    body |= {key: value for key, value in given.items() if value is not None}
    if folder is not None:
        body["kind"] = TriggerKind.FILE
    elif source is not None:
        body["kind"] = TriggerKind.PIPELINE
    if parameters:
        body["parameters"] = parse_pairs(parameters, "--parameter", "path=$FILE")
    made = await connection.client.post("/pipeline-triggers", body)
    text = f"trigger {name} of pipeline {pipeline} created"
    if made["secret"] is not None:
        text += f"\nPOST /pipeline-triggers/{made['id']}/calls\nsecret: {made['secret']}"
    output.print_done(text, made, as_json=as_json)


@trigger.command("list", epilog=example("bai pipeline trigger list"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List the triggers of your pipelines."""
    page = await connection.client.get("/pipeline-triggers", **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["watched"] = _watched(item)
    output.print_page(page, _COLUMNS, as_json=as_json, empty="no triggers")


@trigger.command(epilog=example("bai pipeline trigger renew-secret train push"))
@click.argument("pipeline")
@click.argument("name")
@json_option
@connected
async def renew_secret(connection: Connection, pipeline: str, name: str, *, as_json: bool) -> None:
    """Replace the secret of a trigger, and print the new one."""
    path = await _path(connection.client, pipeline, name)
    made = await connection.client.post(f"{path}/secret", {})
    output.print_done(f"secret: {made['secret']}", made, as_json=as_json)


@trigger.command(epilog=example("bai pipeline trigger disable train push"))
@click.argument("pipeline")
@click.argument("name")
@json_option
@connected
async def disable(connection: Connection, pipeline: str, name: str, *, as_json: bool) -> None:
    """Disable a trigger: calls are refused, and files and runs are ignored."""
    path = await _path(connection.client, pipeline, name)
    made = await connection.client.patch(path, {"is_enabled": False})
    output.print_done(f"trigger {name} disabled", made, as_json=as_json)


@trigger.command(epilog=example("bai pipeline trigger enable train push"))
@click.argument("pipeline")
@click.argument("name")
@json_option
@connected
async def enable(connection: Connection, pipeline: str, name: str, *, as_json: bool) -> None:
    """Enable a disabled trigger."""
    path = await _path(connection.client, pipeline, name)
    made = await connection.client.patch(path, {"is_enabled": True})
    output.print_done(f"trigger {name} enabled", made, as_json=as_json)


@trigger.command(epilog=example("bai pipeline trigger delete train push"))
@click.argument("pipeline")
@click.argument("name")
@json_option
@connected
async def delete(connection: Connection, pipeline: str, name: str, *, as_json: bool) -> None:
    """Delete a trigger; its runs continue."""
    await connection.client.delete(await _path(connection.client, pipeline, name))
    output.print_done(f"trigger {name} deleted", {"name": name}, as_json=as_json)


def _watched(item: Mapping[str, Any]) -> str:
    """Return what fires a trigger."""
    if item["kind"] == TriggerKind.FILE:
        return f"{item['folder'] or '(removed)'}/{item['pattern']}"
    return f"{item['source']} ({item['result']})" if item["source"] else ""


async def _path(client: Client, pipeline: str, name: str) -> str:
    """Return the path of a trigger of a pipeline; ``pipeline`` is a name or an id."""
    pipeline_id = (await client.get(f"/pipelines/{segment(pipeline)}"))["id"]
    page = await client.get("/pipeline-triggers", pipeline_id=pipeline_id, name=name)
    if not page["items"]:
        raise NotFound(f"pipeline {pipeline} has no trigger {name}")
    return f"/pipeline-triggers/{segment(page['items'][0]['id'])}"
