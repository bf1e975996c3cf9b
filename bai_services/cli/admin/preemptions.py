"""`bai admin group preemptions`: the sessions that were stopped to make room for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from .. import output
from ..command import Connection, connected, example, json_option, page_options, page_query

_COLUMNS = ("created_at", "for_session", "owner", "victims", "mode", "stops_at", "outcome")


@click.command("preemptions", epilog=example("bai admin group preemptions default"))
@click.argument("group")
@page_options
@json_option
@connected
async def preemptions(
    connection: Connection,
    group: str,
    *,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the sessions of a resource group that were stopped to make room for others."""
    query = page_query(sort, limit, offset) | {"resource_group": group}
    page = await connection.client.get("/preemptions", **query)
    empty = "no session was preempted in the last 30 days"
    if not as_json:
        for item in page["items"]:
            hidden = item["victim_count"] - len(item["victims"])
            names = [_victim(victim, has_ended=bool(item["outcome"])) for victim in item["victims"]]
            names += [f"{hidden} hidden"] if hidden else []
            item["victims"] = ", ".join(names)
            item["for_session"] = item["session"] or "(hidden)"
            item["outcome"] = item["outcome"] or "waiting"
    output.print_page(page, _COLUMNS, as_json=as_json, empty=empty)


def _victim(victim: Mapping[str, Any], *, has_ended: bool) -> str:
    note = ", not stopped" if has_ended and not victim["stopped_at"] else ""
    return f"{victim['session']} ({victim['rule']}{note})"
