"""`bai image` and `bai preset`: images and resource presets for sessions."""

from __future__ import annotations

import click

from .. import output, units
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

IMAGE_COLUMNS = ("name", "aliases", "minimum", "apps", "description", "architecture")
PACKAGE_COLUMNS = ("name", "version", "kind")
PRESET_COLUMNS = ("name", "resources", "shared_memory", "resource_group")


@command_group(epilog=example("bai image list"))
def image() -> None:
    """List the images that sessions can run, and their packages."""


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


@image.command(
    epilog=example(
        "bai image sbom python",
        "bai image sbom python --package numpy",
        "bai image sbom python --document > python.cdx.json",
    )
)
@click.argument("key", metavar="IMAGE")
@click.option("--package", metavar="TEXT", default="", help="Only packages with TEXT in the name.")
@click.option("--document", is_flag=True, help="Print the whole SBOM (CycloneDX or SPDX JSON).")
@json_option
@connected
async def sbom(
    connection: Connection, key: str, *, package: str, document: bool, as_json: bool
) -> None:
    """List the packages of an image, from its SBOM (software bill of materials).

    An agent that has the image reads the SBOM, which takes up to 20 seconds.
    """
    found = await connection.client.get(f"/images/{segment(key)}/sbom")
    if document:
        output.print_json(found["document"])
        return
    found["packages"] = [
        item for item in found["packages"] if package.lower() in item["name"].lower()
    ]
    if as_json:
        output.print_json(found)
        return
    output.print_table(found["packages"], PACKAGE_COLUMNS, empty="no package has this name")
    if found["is_of_base"]:
        output.note(
            "the SBOM describes the image from which this custom image was made; packages that "
            "were added later are not listed"
        )


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
