"""`bai custom-image`: the images that users make from sessions."""

from __future__ import annotations

from typing import Any

import click

from bai_services.core.cluster.custom_images import Visibility

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

COLUMNS = ("id", "name", "status", "percent", "visibility", "owner", "image", "message")


@command_group("custom-image", epilog=example("bai custom-image list"))
def custom_image() -> None:
    """Manage images that were made with `bai session commit`."""


@custom_image.command("list", epilog=example("bai custom-image list"))
@page_options
@json_option
@connected
async def list_custom_images(
    connection: Connection, *, sort: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List custom images and commits, the newest first unless --sort is given."""
    query = page_query(sort or "-created_at", limit, offset)
    page = await connection.client.get("/custom-images", **query)
    empty = "no custom images; make one with: bai session commit SESSION NAME"
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty)


@custom_image.command(
    epilog=example(
        "bai custom-image update 6f1c… --name tools",
        "bai custom-image update 6f1c… --visibility project",
    )
)
@click.argument("custom_id", metavar="ID")
@click.option("--name", help="New name.")
@click.option("--description", help="New description.")
@click.option(
    "--visibility",
    type=click.Choice([each.value for each in Visibility]),
    help="Who may start sessions with the image; only superadmins publish images.",
)
@json_option
@connected
async def update(
    connection: Connection,
    custom_id: str,
    *,
    name: str | None,
    description: str | None,
    visibility: str | None,
    as_json: bool,
) -> None:
    """Rename a custom image, describe it, or share it with its project."""
    given = {"name": name, "description": description, "visibility": visibility}
    body = {field: value for field, value in given.items() if value is not None}
    changed = await connection.client.patch(f"/custom-images/{segment(custom_id)}", body)
    output.print_done(f"changed {changed['name']}", changed, as_json=as_json)


async def _post(connection: Connection, custom_id: str, action: str) -> dict[str, Any]:
    made: dict[str, Any] = await connection.client.post(
        f"/custom-images/{segment(custom_id)}/{action}"
    )
    return made


@custom_image.command(
    "request-publication", epilog=example("bai custom-image request-publication 6f1c…")
)
@click.argument("custom_id", metavar="ID")
@json_option
@connected
async def request_publication(connection: Connection, custom_id: str, *, as_json: bool) -> None:
    """Ask an administrator to publish a custom image."""
    made = await _post(connection, custom_id, "publication-request")
    output.print_done(f"requested the publication of {made['name']}", made, as_json=as_json)


@custom_image.command(epilog=example("bai custom-image cancel 6f1c…"))
@click.argument("custom_id", metavar="ID")
@json_option
@connected
async def cancel(connection: Connection, custom_id: str, *, as_json: bool) -> None:
    """Cancel a commit that has not ended."""
    made = await _post(connection, custom_id, "cancel")
    output.print_done(f"cancelled the commit {made['name']}", made, as_json=as_json)


@custom_image.command(epilog=example("bai custom-image delete 6f1c…"))
@click.argument("custom_id", metavar="ID")
@json_option
@connected
async def delete(connection: Connection, custom_id: str, *, as_json: bool) -> None:
    """Delete a custom image that no session uses."""
    await connection.client.delete(f"/custom-images/{segment(custom_id)}")
    output.print_done(f"deleted the custom image {custom_id}", {"id": custom_id}, as_json=as_json)
