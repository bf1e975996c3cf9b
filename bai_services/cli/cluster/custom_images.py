"""`bai custom-image`: the images that users make from sessions and recipes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from bai_services.core.cluster.custom_images import OPEN_COMMITS, CommitStatus, Visibility
from bai_services.core.cluster.recipes import FILES
from bai_services.core.errors import Conflict, InvalidRequest

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
from ..sessions.spec_options import parse_amounts

POLL_SECONDS = 1.0
COLUMNS = ("id", "name", "status", "percent", "visibility", "owner", "image", "message")


@command_group("custom-image", epilog=example("bai custom-image list"))
def custom_image() -> None:
    """Manage images that were made from sessions (`bai session commit`) or recipes."""


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
        "bai custom-image build my-tools .",
        "bai custom-image build my-tools . --image python -r cpu=2 -r mem=4g --wait",
        "bai custom-image build my-tools env --repo https://git.example.org/lab/course.git",
    )
)
@click.argument("name")
@click.argument("directory", required=False)
@click.option("--folder", metavar="NAME", help="Read the recipe from this folder.")
@click.option("--repo", metavar="URL", help="Read the recipe from this git repository (https).")
@click.option("--branch", metavar="NAME", help="Branch, tag or commit of the repository.")
@click.option(
    "--token-stdin", is_flag=True,
    help="Read an access token for the repository from standard input.",
)  # fmt: skip
@click.option("--image", help="Base image. Default: the image of the project.")
@click.option("--project", help="Project whose quota the build uses.")
@click.option("--group", help="Resource group in which the image is built.")
@click.option(
    "-r", "--resource", "resources", multiple=True, metavar="SLOT=AMOUNT",
    callback=parse_amounts,
    help="Resources of the build; can be repeated.",
)  # fmt: skip
@click.option("--description", default="", help="Text that lists show beside the name.")
@click.option(
    "--visibility",
    type=click.Choice([each.value for each in Visibility]),
    default=Visibility.PRIVATE.value,
    show_default=True,
    help="Who may start sessions with the image.",
)
@click.option("--wait", is_flag=True, help="Print the output until the image is complete.")
@json_option
@connected
async def build(
    connection: Connection,
    name: str,
    directory: str | None,
    *,
    folder: str | None,
    repo: str | None,
    branch: str | None,
    token_stdin: bool,
    image: str | None,
    project: str | None,
    group: str | None,
    resources: Mapping[str, str],
    description: str,
    visibility: str,
    wait: bool,
    as_json: bool,
) -> None:
    """Build the custom image NAME from a recipe.

    Without --folder and --repo, the recipe is in DIRECTORY of this machine. With one of them, it is
    in DIRECTORY of a folder or git repository; the default is its top directory.

    The recipe consists of apt.txt, environment.yml, requirements.txt and Dockerfile; at least one
    of these files is needed. Other files of the directory are not read.
    """
    body: dict[str, Any] = {"name": name, "description": description, "visibility": visibility}
    given = {"image": image, "project": project, "resource_group": group}
    body |= {field: value for field, value in given.items() if value is not None}
    if resources:
        body["resources"] = dict(resources)
    if folder and repo:
        raise click.UsageError("pass either --folder or --repo")
    if folder or repo:
        source = {"vfolder": folder, "repo": repo, "branch": branch, "directory": directory}
        source["token"] = await asyncio.to_thread(_read_token) if token_stdin else None
        given = {field: value for field, value in source.items() if value}
        body["recipe"] = (await connection.client.post("/recipes", given))["recipe"]
    elif directory is None:
        raise click.UsageError("pass DIRECTORY, --folder or --repo")
    else:
        body["recipe"] = await asyncio.to_thread(_read_recipe, Path(directory))
    made = await connection.client.post("/custom-images", body)
    shown = ""
    while wait:
        made = await connection.client.get(f"/custom-images/{made['id']}")
        log = (await connection.client.get(f"/custom-images/{made['id']}/log"))["log"]
        # If the beginning was removed, print the whole log: the manager keeps only the end of a
        # long output.
        added = log[len(shown) :] if log.startswith(shown) else log
        if added and not as_json:
            output.print_log(added)
        shown = log
        if made["status"] not in OPEN_COMMITS:
            break
        await asyncio.sleep(POLL_SECONDS)
    if made["status"] == CommitStatus.FAILED:
        raise Conflict(f"the build failed: {made['message']}")
    is_done = made["status"] == CommitStatus.DONE
    text = (
        f"built {made['image']}"
        if is_done
        else f"the build of {name} waits for resources; for its state, run: bai custom-image list"
    )
    output.print_done(text, made, as_json=as_json)


def _read_token() -> str:
    return sys.stdin.readline().strip()


def _read_recipe(directory: Path) -> dict[str, str]:
    if not directory.is_dir():
        raise InvalidRequest(f"{directory} is not a directory")
    found: dict[str, str] = {}
    for name in FILES:
        path = directory / name
        if path.is_file():
            try:
                found[name] = path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidRequest(f"{path} cannot be read: {error}") from error
    if not found:
        raise InvalidRequest(f"{directory} has none of the files {', '.join(FILES)}")
    return found


@custom_image.command(epilog=example("bai custom-image log 6f1c…"))
@click.argument("custom_id", metavar="ID")
@json_option
@connected
async def log(connection: Connection, custom_id: str, *, as_json: bool) -> None:
    """Print the output of the build of a custom image."""
    found = await connection.client.get(f"/custom-images/{segment(custom_id)}/log")
    if as_json:
        output.print_json(found)
    else:
        output.print_log(found["log"])


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
