"""`bai admin project members`: the members of a project."""

from __future__ import annotations

import click

from .. import output
from ..command import (
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)


@command_group("members")
def members() -> None:
    """List, add and remove the members of a project."""


_USERS_ARGUMENT = click.argument("users", metavar="USER…", nargs=-1, required=True)


@members.command("list", epilog=example("bai admin project members list vision"))
@click.argument("project")
@page_options
@json_option
@connected
async def list_members(
    connection: Connection,
    project: str,
    *,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the members of a project."""
    query = page_query(sort, limit, offset)
    page = await connection.client.get(f"/projects/{segment(project)}/members", **query)
    empty = f"no members; add one: bai admin project members add {project} USER"
    output.print_page(page, ("username", "email", "full_name"), as_json=as_json, empty=empty)


@members.command("add", epilog=example("bai admin project members add vision ann bob"))
@click.argument("project")
@_USERS_ARGUMENT
@json_option
@connected
async def add_members(
    connection: Connection, project: str, users: tuple[str, ...], *, as_json: bool
) -> None:
    """Add users to a project."""
    await _change_members(connection, "PUT", project, users)
    done = {"project": project, "added": list(users)}
    output.print_done(f"added {', '.join(users)} to {project}", done, as_json=as_json)


@members.command("rm", epilog=example("bai admin project members rm vision bob"))
@click.argument("project")
@_USERS_ARGUMENT
@json_option
@connected
async def remove_members(
    connection: Connection, project: str, users: tuple[str, ...], *, as_json: bool
) -> None:
    """Remove users from a project."""
    await _change_members(connection, "DELETE", project, users)
    done = {"project": project, "removed": list(users)}
    output.print_done(f"removed {', '.join(users)} from {project}", done, as_json=as_json)


async def _change_members(
    connection: Connection, method: str, project: str, users: tuple[str, ...]
) -> None:
    for user in users:
        await connection.client.call(
            method, f"/projects/{segment(project)}/members/{segment(user)}"
        )
