"""`bai image` and `bai preset`: list images and resource presets for sessions."""

from __future__ import annotations

from .. import output, units
from ..command import (
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
)

IMAGE_COLUMNS = ("name", "aliases", "minimum", "apps", "description", "architecture")
PRESET_COLUMNS = ("name", "resources", "shared_memory", "resource_group")


@command_group(epilog=example("bai image list"))
def image() -> None:
    """List the images that sessions can run."""


@image.command("list", epilog=example("bai image list", "bai image list --sort -created_at"))
@page_options
@json_option
@connected
async def list_images(
    connection: Connection, *, sort: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List the images for `bai session create --image`, sorted by name unless --sort is given."""
    page = await connection.client.get("/images", **page_query(sort or "name", limit, offset))
    if not as_json:
        for item in page["items"]:
            item["minimum"] = units.slots(item["min_slots"])
    empty = "no images; an administrator registers one with: bai admin image create"
    output.print_page(page, IMAGE_COLUMNS, as_json=as_json, empty=empty)


@command_group(epilog=example("bai preset list"))
def preset() -> None:
    """List the resource presets for sessions."""


@preset.command("list", epilog=example("bai preset list"))
@page_options
@json_option
@connected
async def list_presets(
    connection: Connection, *, sort: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List the presets for `bai session create --preset`, sorted by name unless --sort is given."""
    page = await connection.client.get("/presets", **page_query(sort or "name", limit, offset))
    if not as_json:
        for item in page["items"]:
            item["resources"] = units.slots(item["resource_slots"])
            item["resource_group"] = item["resource_group"] or "all"
            if item["shared_memory"]:
                item["shared_memory"] = units.memory(item["shared_memory"])
    empty = "no presets; request resources with: bai session create NAME -r cpu=1 -r mem=1g"
    output.print_page(page, PRESET_COLUMNS, as_json=as_json, empty=empty)
