"""`bai session resize`: change the resources of a running session."""

from __future__ import annotations

from collections.abc import Mapping

import click

from .. import output
from ..command import Connection, connected, example, json_option, segment
from .spec_options import parse_amounts


@click.command(
    epilog=example(
        "bai session resize my-lab -r cpu=4 -r mem=8g", "bai session resize my-lab -r mem=1g"
    )
)
@click.argument("name")
@click.option(
    "-r", "--resource", "resources", multiple=True, required=True, metavar="SLOT=AMOUNT",
    callback=parse_amounts,
    help="New amount of cpu, mem or a device share. Other resources do not change.",
)  # fmt: skip
@json_option
@connected
async def resize(
    connection: Connection, name: str, *, resources: Mapping[str, str], as_json: bool
) -> None:
    """Change the resources of a running session, without a restart.

    Additional resources must be free on the session's machine and within the quotas.
    Memory cannot be reduced below what the session uses. Device shares can be changed only where
    the driver does not enforce their limit.
    """
    session = await connection.client.post(
        f"/sessions/{segment(name)}/resize", {"resources": dict(resources)}
    )
    size = " ".join(f"{slot}={amount}" for slot, amount in session["requested"].items())
    change = session["resize"]
    is_pending = change is not None and change["state"] == "pending"
    text = f"{session['name']} has {size}"
    text += "; its agent has not applied the change yet" if is_pending else ""
    output.print_done(text, session, as_json=as_json)
