"""`bai service check` and `bai service try`: check a definition before it is served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from .. import output
from ..command import Connection, connected, example, json_option
from .options import given_fields, read_definition, revision_request, settings_options

# Polling interval of a trial's state.
POLL_SECONDS = 1.0


@click.command(epilog=example("bai service check model-definition.yaml"))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
@connected
async def check(connection: Connection, file: Path, *, as_json: bool) -> None:
    """Check a model definition; an error names the line."""
    body = {"definition": read_definition(file)}
    found = await connection.client.post("/model-definitions/check", body)
    output.print_fields(found, as_json=as_json)


@click.command(
    "try",
    short_help="Start one replica as a trial.",
    epilog=example(
        "bai service try --variant cmd --command 'python3 server.py' -r cpu=1 -r mem=1g",
        "bai service try --model-folder mine --definition-file model-definition.yaml",
    ),
)
@click.option("--project", metavar="NAME", help="Project that is charged.")
@settings_options
@json_option
@connected
async def try_(
    connection: Connection, *, project: str | None, as_json: bool, **options: Any
) -> None:
    """Start one replica that no client can call, and explain why it does not become healthy.

    The replica ends after its first successful health check, or after --start-seconds.
    """
    body = given_fields({"project": project}) | revision_request(options)
    trial = await connection.client.post("/endpoint-trials", body)
    path = f"/endpoint-trials/{trial['id']}"
    shown = ""
    try:
        while trial["ended_at"] is None:
            # Print a note only when the cause changes, not at each poll.
            if trial["state_coded"]["code"] != shown and not as_json:
                shown = trial["state_coded"]["code"]
                output.note(trial["state"])
            await asyncio.sleep(POLL_SECONDS)
            trial = await connection.client.get(path)
    except BaseException:
        # Delete the trial, because no command waits for its result any longer.
        await connection.client.delete(path)
        raise
    if not as_json and trial["log"]:
        output.print_log(trial["log"].rstrip() + "\n")
    output.print_done(trial["state"], trial, as_json=as_json)
    if not trial["is_healthy"]:
        click.get_current_context().exit(1)
