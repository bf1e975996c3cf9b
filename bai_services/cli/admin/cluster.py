"""`bai admin cluster doctor`, and the invitations of agents."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import click

from bai_services.client import is_loopback

from .. import failures, output
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

COLUMNS = ("id", "resource_group", "created_by", "expires_at", "used_at", "agent_id")
# The manager bounds a check to 10 s.
TIMEOUT_SECONDS = 20


@command_group()
def cluster() -> None:
    """Check the nodes of the installation."""


@cluster.command(epilog=example("bai admin cluster doctor", "bai admin cluster doctor --json"))
@json_option
@connected
async def doctor(connection: Connection, *, as_json: bool) -> None:
    """Check each node: engine, network, mounts, clock, versions, certificates, disk.

    Exit code 0: no errors (there may be warnings); 1: errors.
    """
    report = await connection.client.post("/cluster-checks", timeout_seconds=TIMEOUT_SECONDS)
    if as_json:
        output.print_json(report)
    else:
        manager = {"agent_id": "manager", "status": "", "findings": report["findings"]}
        for node in (manager, *report["nodes"]):
            click.echo(output.cell(f"{node['agent_id']} {node['status']}".strip()))
            for finding in node["findings"]:
                text = f"  {finding['level']:<8} {finding['check']}: {finding['message']}"
                click.echo(output.cell(text))
                if finding["remedy"]:
                    click.echo(output.cell(f"{'':<11}remedy: {finding['remedy']}"))
    if report["level"] == "error":
        sys.exit(failures.FAILED)


@click.command(epilog=example("bai admin agent invite --resource-group gpu"))
@click.option("--resource-group", metavar="NAME", default="default", help="Group of the agent.")
@click.option(
    "--minutes",
    type=click.IntRange(1, 7 * 24 * 60),
    default=60,
    help="Minutes until the invitation expires. Default: 60.",
)
@json_option
@connected
async def invite(
    connection: Connection, *, resource_group: str, minutes: int, as_json: bool
) -> None:
    """Create an invitation for one machine, and print the command with which it joins.

    The token in the command is shown only once.
    """
    body = {"resource_group": resource_group, "valid_minutes": minutes}
    made = await connection.client.post("/agent-invitations", body)
    command = f"bai-agent join {connection.profile.url} --token {made['token']}"
    output.print_done(command, {**made, "command": command}, as_json=as_json)
    host = urlsplit(connection.profile.url).hostname or ""
    if is_loopback(host):
        output.note(
            f"note: other machines cannot reach the hub at {host}; replace it with the hub's "
            "address in the network"
        )


@click.command(epilog=example("bai admin agent invitations"))
@page_options
@json_option
@connected
async def invitations(
    connection: Connection, *, sort: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List the invitations of agents."""
    page = await connection.client.get("/agent-invitations", **page_query(sort, limit, offset))
    output.print_page(page, COLUMNS, as_json=as_json, empty="no invitations")


@click.command(epilog=example("bai admin agent uninvite 4f0c…"))
@click.argument("invitation_id", metavar="ID")
@json_option
@connected
async def uninvite(connection: Connection, invitation_id: str, *, as_json: bool) -> None:
    """Delete an invitation: it can no longer be used. An agent that has joined remains."""
    await connection.client.delete(f"/agent-invitations/{segment(invitation_id)}")
    output.print_done("the invitation is deleted", {"id": invitation_id}, as_json=as_json)
