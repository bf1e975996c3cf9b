"""`bai admin agent drain` and `undrain`."""

from __future__ import annotations

import click

from .. import output
from ..command import (
    Connection,
    connected,
    example,
    json_option,
    segment,
)


@click.command("drain", epilog=example("bai admin agent drain gpu-node-1"))
@click.argument("agent")
@json_option
@connected
async def drain(connection: Connection, agent: str, *, as_json: bool) -> None:
    """Place no new sessions on an agent; running sessions continue."""
    changed = await connection.client.patch(f"/agents/{segment(agent)}", {"schedulable": False})
    text = f"{agent} accepts no new sessions; running sessions continue"
    output.print_done(text, changed, as_json=as_json)


@click.command("undrain", epilog=example("bai admin agent undrain gpu-node-1"))
@click.argument("agent")
@json_option
@connected
async def undrain(connection: Connection, agent: str, *, as_json: bool) -> None:
    """Place new sessions on an agent again."""
    changed = await connection.client.patch(f"/agents/{segment(agent)}", {"schedulable": True})
    output.print_done(f"{agent} accepts new sessions", changed, as_json=as_json)
