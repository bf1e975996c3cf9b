"""`bai image` and `bai preset`: what a session can be started with."""

from __future__ import annotations

import click

from .. import output, units
from ..command import Connection, connected, example, json_option

IMAGE_COLUMNS = ("name", "aliases", "minimum", "apps", "description", "architecture")
PRESET_COLUMNS = ("name", "resources", "shared_memory", "resource_group")
_limit = click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Number of entries.",
)
_offset = click.option("--offset", type=click.IntRange(min=0), default=0, help="First entry.")
_sort = click.option(
    "--sort", metavar="FIELD[,…]", default="name", help="With - in front for descending."
)


@click.group(epilog=example("bai image list"))
def image() -> None:
    """List the images that sessions can run."""


@image.command("list", epilog=example("bai image list", "bai image list --sort -created_at"))
@_sort
@_limit
@_offset
@json_option
@connected
async def list_images(
    connection: Connection, *, sort: str, limit: int, offset: int, as_json: bool
) -> None:
    """List the images that sessions can run, for `bai session create --image`."""
    page = await connection.client.get("/images", sort=sort, limit=limit, offset=offset)
    if not as_json:
        for item in page["items"]:
            item["minimum"] = units.slots(item["min_slots"])
    empty = "there is no image; an administrator registers one with: bai admin image create"
    output.print_page(page, IMAGE_COLUMNS, as_json=as_json, empty=empty)


@click.group(epilog=example("bai preset list"))
def preset() -> None:
    """List the presets of resources that sessions can use."""


@preset.command("list", epilog=example("bai preset list"))
@_sort
@_limit
@_offset
@json_option
@connected
async def list_presets(
    connection: Connection, *, sort: str, limit: int, offset: int, as_json: bool
) -> None:
    """List the presets of resources, for `bai session create --preset`."""
    page = await connection.client.get("/presets", sort=sort, limit=limit, offset=offset)
    if not as_json:
        for item in page["items"]:
            item["resources"] = units.slots(item["resource_slots"])
            item["resource_group"] = item["resource_group"] or "all"
            if item["shared_memory"]:
                item["shared_memory"] = units.memory(item["shared_memory"])
    empty = "there is no preset; request resources with: bai session create NAME -r cpu=1 -r mem=1g"
    output.print_page(page, PRESET_COLUMNS, as_json=as_json, empty=empty)
