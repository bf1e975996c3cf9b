"""`bai admin group`: access to a resource group, and the schedule of its sessions."""

from __future__ import annotations

import click

from .. import output
from ..command import (
    Choice,
    Connection,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)

_KIND_ARGUMENT = click.argument("kind", type=Choice(["domain", "project", "user", "keypair"]))


@click.command("links", epilog=example("bai admin group links gpu"))
@click.argument("group")
@page_options
@json_option
@connected
async def links(
    connection: Connection,
    group: str,
    *,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the domains, projects, users and keypairs that may use a resource group."""
    query = page_query(sort, limit, offset)
    page = await connection.client.get(f"/resource-groups/{segment(group)}/links", **query)
    empty = f"no links; allow a domain with: bai admin group link {group} domain NAME"
    output.print_page(page, ("kind", "name"), as_json=as_json, empty=empty)


@click.command("link", epilog=example("bai admin group link gpu domain research"))
@click.argument("group")
@_KIND_ARGUMENT
@click.argument("target")
@json_option
@connected
async def link(
    connection: Connection, group: str, kind: str, target: str, *, as_json: bool
) -> None:
    """Allow a domain, project, user or keypair to use a resource group."""
    await connection.client.put(_link_path(group, kind, target))
    done = {"resource_group": group, "kind": kind, "target": target}
    output.print_done(f"{kind} {target} may use {group}", done, as_json=as_json)


@click.command("unlink", epilog=example("bai admin group unlink gpu domain research"))
@click.argument("group")
@_KIND_ARGUMENT
@click.argument("target")
@json_option
@connected
async def unlink(
    connection: Connection, group: str, kind: str, target: str, *, as_json: bool
) -> None:
    """Revoke the access of a domain, project, user or keypair to a resource group."""
    await connection.client.delete(_link_path(group, kind, target))
    done = {"resource_group": group, "kind": kind, "target": target}
    output.print_done(f"{kind} {target} may no longer use {group}", done, as_json=as_json)


@click.command("schedule", epilog=example("bai admin group schedule default"))
@click.argument("group")
@json_option
@connected
async def schedule(connection: Connection, group: str, *, as_json: bool) -> None:
    """Show the running and pending sessions of a resource group, with agents and end times."""
    response = await connection.client.get(f"/resource-groups/{segment(group)}/schedule")
    if as_json:
        output.print_json(response)
        return
    rows = [
        {
            "position": row["position"] or "",
            "session": (row["session"] or {}).get("name", "(hidden)"),
            "owner": (row["session"] or {}).get("owner", ""),
            "agents": ", ".join(kernel["agent_id"] for kernel in row["kernels"]),
            "starts_at": row["starts_at"],
            "ends_at": row["ends_at"],
            "certainty": row["certainty"],
        }
        for row in (*response["running"], *response["waiting"])
    ]
    columns = ("position", "session", "owner", "agents", "starts_at", "ends_at", "certainty")
    output.print_table(rows, columns, empty="no running or pending sessions in this group")
    total = response["running_count"] + response["waiting_count"]
    if len(rows) < total:
        output.note(f"the first {len(rows)} of {total} sessions")


def _link_path(group: str, kind: str, target: str) -> str:
    return f"/resource-groups/{segment(group)}/links/{kind}/{segment(target)}"


RESOURCE_GROUP_COMMANDS = (links, link, unlink, schedule)
