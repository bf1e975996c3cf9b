"""`bai admin image-prune`: list or remove the unused images of agents."""

from __future__ import annotations

import click

from bai_services.core.counts import counted
from bai_services.core.resources import MEM, format_amount

from .. import output
from ..command import Connection, connected, example, json_option

COLUMNS = ("agent_id", "image", "size", "last_used_at", "is_removed")
SECONDS_PER_DAY = 24 * 3600
# The manager bounds a request to 20 s.
TIMEOUT_SECONDS = 40


@click.command(
    "image-prune",
    epilog=example(
        "bai admin image-prune --group gpu --unused-days 30",
        "bai admin image-prune --group gpu --unused-days 30 --remove",
    ),
)
@click.option("-g", "--group", required=True, help="Agents of this resource group.")
@click.option(
    "--unused-days",
    type=click.IntRange(1, 3660),
    default=30,
    show_default=True,
    help="Images that nobody has used for this number of days.",
)
@click.option("--remove", is_flag=True, help="Remove the images. Default: only list them.")
@json_option
@connected
async def image_prune(
    connection: Connection, *, group: str, unused_days: int, remove: bool, as_json: bool
) -> None:
    """List the unused images of the agents of a resource group, or remove them.

    Images in use, images with an alias, default images of projects, and images that no registry
    has remain.
    """
    body = {
        "resource_group": group,
        "unused_seconds": unused_days * SECONDS_PER_DAY,
        "is_dry_run": not remove,
    }
    report = await connection.client.post("/image-prunes", body, timeout_seconds=TIMEOUT_SECONDS)
    if as_json:
        output.print_json(report)
        return
    rows = [
        {**image, "size": format_amount(MEM, image["size_bytes"])} for image in report["images"]
    ]
    output.print_table(rows, COLUMNS, empty="no unused images")
    if rows and not remove:
        click.echo("nothing was removed; to remove these images, add --remove", err=True)
    if report["silent_agents"]:
        agents = counted(len(report["silent_agents"]), "agents")
        names = ", ".join(report["silent_agents"])
        click.echo(output.cell(f"no report yet from {agents}: {names}"), err=True)
