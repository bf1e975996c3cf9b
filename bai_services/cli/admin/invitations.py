"""`bai admin invitation`: invitations that let users create their own accounts."""

from __future__ import annotations

from typing import Any

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

COLUMNS = ("id", "description", "domain", "project", "uses", "max_uses", "expires_at")


@command_group()
def invitation() -> None:
    """Manage invitations to sign up."""


@invitation.command("list", epilog=example("bai admin invitation list"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, sort: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List the invitations of your domain, or of all domains."""
    page = await connection.client.get("/sign-up-invitations", **page_query(sort, limit, offset))
    output.print_page(page, COLUMNS, as_json=as_json, empty="no invitations")


@invitation.command(
    epilog=example("bai admin invitation create --project course --uses 30 --days 14")
)
@click.option("--domain", metavar="NAME", help="Domain of the accounts. Default: your domain.")
@click.option("--project", metavar="NAME", help="Project of the accounts. Default: default.")
@click.option("--description", metavar="TEXT", help="Purpose of the invitation.")
@click.option("--uses", type=click.IntRange(1, 10_000), default=1, help="Number of accounts.")
@click.option("--days", type=click.IntRange(1, 365), default=7, help="Days until it expires.")
@json_option
@connected
async def create(
    connection: Connection,
    *,
    domain: str | None,
    project: str | None,
    description: str | None,
    uses: int,
    days: int,
    as_json: bool,
) -> None:
    """Create an invitation and print its link, which is shown only once."""
    body: dict[str, Any] = {"max_uses": uses, "valid_days": days}
    given = {"domain": domain, "project": project, "description": description}
    body |= {name: value for name, value in given.items() if value is not None}
    made = await connection.client.post("/sign-up-invitations", body)
    link = f"{connection.profile.url}/hub/sign-up#{made['token']}"
    output.print_done(f"{made['id']}\n{link}", {**made, "link": link}, as_json=as_json)


@invitation.command(epilog=example("bai admin invitation delete 4f0c…"))
@click.argument("invitation_id", metavar="ID")
@json_option
@connected
async def delete(connection: Connection, invitation_id: str, *, as_json: bool) -> None:
    """Delete an invitation: it can no longer be used. Existing accounts remain."""
    await connection.client.delete(f"/sign-up-invitations/{segment(invitation_id)}")
    output.print_done("the invitation is deleted", {"id": invitation_id}, as_json=as_json)
