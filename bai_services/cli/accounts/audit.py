"""`bai audit`: the actions of others on the user's own objects."""

from __future__ import annotations

import click

from .. import output
from ..command import (
    Connection,
    connected,
    example,
    json_option,
    ls_argument,
    page_options,
    page_query,
)

COLUMNS = ("at", "actor", "action", "entity_name", "on_behalf_of", "details")


@click.command("audit", epilog=example("bai audit", "bai audit --action session.read-log"))
@ls_argument
@click.option("--action", metavar="ACTION", help="Only this action, for example session.read-log.")
@click.option("--actor", metavar="USER", help="Only actions of this user.")
@page_options
@json_option
@connected
async def audit(
    connection: Connection,
    *,
    action: str | None,
    actor: str | None,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List what others did with your sessions, apps, folders, keys and account, newest first.

    Includes reads by administrators, and visits of apps that you share.
    """
    query = page_query(sort, limit, offset)
    query |= {name: value for name, value in {"action": action, "actor": actor}.items() if value}
    page = await connection.client.get("/audit-log/mine", **query)
    empty = "no actions of others on your sessions and folders"
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty)
