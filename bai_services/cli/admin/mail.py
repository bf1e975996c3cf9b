"""`bai admin mail`: the mail server's settings, and a test mail."""

from __future__ import annotations

import click

from .. import output
from ..command import Connection, command_group, connected, example, json_option


@command_group()
def mail() -> None:
    """Check the settings of the mail server."""


@mail.command(epilog=example("bai admin mail status"))
@json_option
@connected
async def status(connection: Connection, *, as_json: bool) -> None:
    """Show the mail server, and the number of mails that wait for delivery."""
    output.print_fields(await connection.client.get("/mail"), as_json=as_json)


@mail.command(epilog=example("bai admin mail test ann@example.org"))
@click.argument("address")
@json_option
@connected
async def test(connection: Connection, address: str, *, as_json: bool) -> None:
    """Send a test mail to ADDRESS, and show the response of the mail server if it fails."""
    sent = await connection.client.post("/mail/test", {"address": address})
    text = f"{sent['server']} has accepted a test mail to {sent['recipient']}"
    output.print_done(text, sent, as_json=as_json)
