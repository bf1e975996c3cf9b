"""`bai sign-in`: list and end your browser sign-ins."""

from __future__ import annotations

import click

from bai_services.core.counts import counted
from bai_services.core.errors import InvalidRequest

from .. import output
from ..command import Connection, command_group, connected, example, json_option, segment

COLUMNS = ("id", "program", "address", "created_at", "last_used")


@command_group("sign-in")
def sign_in() -> None:
    """Manage the browsers in which you are signed in."""


@sign_in.command("ls", epilog=example("bai sign-in ls"))
@json_option
@connected
async def list_(connection: Connection, *, as_json: bool) -> None:
    """List the browsers in which you are signed in, newest first."""
    found = await connection.client.get("/me/sign-ins")
    if as_json:
        output.print_json(found)
    else:
        output.print_table(found["items"], COLUMNS, empty="you are signed in to no browser")


@sign_in.command(epilog=example("bai sign-in rm a12", "bai sign-in rm --all"))
@click.argument("sign_in_id", metavar="ID", required=False)
@click.option("--all", "ends_all", is_flag=True, help="Sign out of all browsers.")
@json_option
@connected
async def rm(
    connection: Connection, sign_in_id: str | None, *, ends_all: bool, as_json: bool
) -> None:
    """Sign out of the browser with this ID. Tokens and sessions are not affected."""
    if (sign_in_id is None) != ends_all:
        raise InvalidRequest("give either the ID of a sign-in (bai sign-in ls) or --all")
    if sign_in_id is None:
        ended = await connection.client.delete("/me/sign-ins")
        text = f"signed out of {counted(ended['count'], 'browser')}"
        output.print_done(text, ended, as_json=as_json)
        return
    await connection.client.delete(f"/me/sign-ins/{segment(sign_in_id)}")
    output.print_done(f"ended sign-in {sign_in_id}", {"id": sign_in_id}, as_json=as_json)
