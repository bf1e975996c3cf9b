"""`bai admin image-pull`: pull images to agents ahead of the first session."""

from __future__ import annotations

import click

from bai_services.core.counts import counted

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

COLUMNS = ("id", "image", "agent_id", "status", "percent", "message", "changed_at")
AGENT_COLUMNS = ("agent_id", "resource_group", "status", "digest", "is_current")


@command_group("image-pull")
def image_pull() -> None:
    """Pull images to agents ahead of the first session."""


@image_pull.command(
    "create", epilog=example("bai admin image-pull create python pytorch --group gpu")
)
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@click.option("-g", "--group", required=True, help="Pull to the agents of this resource group.")
@json_option
@connected
async def create(
    connection: Connection, images: tuple[str, ...], group: str, *, as_json: bool
) -> None:
    """Pull images to those agents of a resource group that lack them."""
    body = {"images": list(images), "resource_group": group}
    made = await connection.client.post("/image-pulls", body)
    pulls = counted(made["count"], "pulls")
    text = f"created {pulls}; for the progress, run: bai admin image-pull list"
    output.print_done(text, made, as_json=as_json)


@image_pull.command("list", epilog=example("bai admin image-pull list"))
@page_options
@json_option
@connected
async def list_pulls(
    connection: Connection, *, sort: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List pulls with their progress, the newest first unless --sort is given."""
    query = page_query(sort or "-created_at", limit, offset)
    page = await connection.client.get("/image-pulls", **query)
    empty = "no pulls; start some with: bai admin image-pull create IMAGE --group GROUP"
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty)


@image_pull.command(epilog=example("bai admin image-pull cancel 6f1c…"))
@click.argument("pull_id", metavar="ID")
@json_option
@connected
async def cancel(connection: Connection, pull_id: str, *, as_json: bool) -> None:
    """Cancel a pull."""
    await connection.client.delete(f"/image-pulls/{segment(pull_id)}")
    output.print_done(f"cancelled the pull {pull_id}", {"id": pull_id}, as_json=as_json)


@image_pull.command(epilog=example("bai admin image-pull agents python"))
@click.argument("image")
@json_option
@connected
async def agents(connection: Connection, image: str, *, as_json: bool) -> None:
    """List the agents that have IMAGE, and whether they have the registered version."""
    found = await connection.client.get(f"/images/{segment(image)}/agents")
    if as_json:
        output.print_json(found)
    else:
        output.print_table(found["items"], AGENT_COLUMNS, empty="no agent has this image")
