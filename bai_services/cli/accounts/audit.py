"""`bai audit`: the actions of others on the user's own objects."""

from __future__ import annotations

import click

from bai_services.client import Client
from bai_services.core.listing import MAX_LIMIT

from .. import output
from ..command import (
    Connection,
    connected,
    did_you_mean,
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
    if not (as_json or page["total"]):
        empty += await similar_actions(connection.client, "/audit-log/mine", action)
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty, has_exact_times=True)


async def similar_actions(client: Client, path: str, action: str | None) -> str:
    """Return a sentence that suggests actions similar to an action without entries; empty if there
    is none.

    The actions of the newest entries are compared, because there is no list of all actions.
    """
    if action is None:
        return ""
    known = {entry["action"] for entry in (await client.get(path, limit=MAX_LIMIT))["items"]}
    if action in known:
        return ""
    suggestion = did_you_mean(action, sorted(known))
    return f" for action {action!r}.{suggestion}" if suggestion else ""
