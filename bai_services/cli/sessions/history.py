"""`bai session history`: the status changes of a session."""

from __future__ import annotations

import click

from .. import output
from ..command import Connection, connected, example, json_option, segment

COLUMNS = ("at", "to_status", "reason")


@click.command(epilog=example("bai session history my-lab"))
@click.argument("name")
@json_option
@connected
async def history(connection: Connection, name: str, *, as_json: bool) -> None:
    """List the status changes of a session with their exact times and reasons, oldest first."""
    changes = await connection.client.get(f"/sessions/{segment(name)}/history")
    if as_json:
        output.print_json(changes)
    else:
        empty = "no status changes yet: the session is pending"
        output.print_table(changes["items"], COLUMNS, empty=empty, has_exact_times=True)
