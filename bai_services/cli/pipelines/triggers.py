"""`bai pipeline trigger`: signed requests that run pipelines."""

from __future__ import annotations

import click

from bai_services.client import Client
from bai_services.core.errors import NotFound

from .. import output
from ..command import (
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)

_COLUMNS = ("pipeline", "name", "is_enabled", "last_call_at", "last_run_id", "last_message", "id")


@command_group()
def trigger() -> None:
    """Let other services run pipelines with signed requests."""


@trigger.command(epilog=example("bai pipeline trigger create train push"))
@click.argument("pipeline")
@click.argument("name")
@json_option
@connected
async def create(connection: Connection, pipeline: str, name: str, *, as_json: bool) -> None:
    """Create a trigger; print the path of its calls, and the secret of the signatures once."""
    body = {"pipeline": pipeline, "name": name}
    made = await connection.client.post("/pipeline-triggers", body)
    text = f"trigger {name} of pipeline {pipeline} created\n"
    text += f"POST /pipeline-triggers/{made['id']}/calls\nsecret: {made['secret']}"
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
    """Disable a trigger: its calls are refused."""
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


async def _path(client: Client, pipeline: str, name: str) -> str:
    """Return the path of a trigger of a pipeline; ``pipeline`` is a name or an id."""
    pipeline_id = (await client.get(f"/pipelines/{segment(pipeline)}"))["id"]
    page = await client.get("/pipeline-triggers", pipeline_id=pipeline_id, name=name)
    if not page["items"]:
        raise NotFound(f"pipeline {pipeline} has no trigger {name}")
    return f"/pipeline-triggers/{segment(page['items'][0]['id'])}"
