"""`bai session commit`: make a custom image from a running session."""

from __future__ import annotations

import asyncio

import click

from bai_services.core.cluster.custom_images import OPEN_COMMITS, CommitStatus, Visibility
from bai_services.core.errors import Conflict

from .. import output
from ..command import Connection, connected, example, json_option, segment

POLL_SECONDS = 1.0


@click.command(
    epilog=example(
        "bai session commit my-lab my-tools",
        "bai session commit my-lab my-tools --visibility project --wait",
    )
)
@click.argument("session")
@click.argument("name")
@click.option("--description", default="", help="Text that lists show beside the name.")
@click.option(
    "--visibility",
    type=click.Choice([each.value for each in Visibility]),
    default=Visibility.PRIVATE.value,
    show_default=True,
    help="Who may start sessions with the image.",
)
@click.option("--wait", is_flag=True, help="Wait until the image is complete.")
@json_option
@connected
async def commit(
    connection: Connection,
    session: str,
    name: str,
    *,
    description: str,
    visibility: str,
    wait: bool,
    as_json: bool,
) -> None:
    """Commit SESSION to the custom image NAME (4 to 32 letters, digits, - and _).

    The image contains what the session has changed in the file system of its image. Mounted
    folders, the home folder, and variables are not part of it.
    """
    body = {"name": name, "description": description, "visibility": visibility}
    made = await connection.client.post(f"/sessions/{segment(session)}/commit", body)
    while wait and made["status"] in OPEN_COMMITS:
        await asyncio.sleep(POLL_SECONDS)
        made = await connection.client.get(f"/custom-images/{made['id']}")
    if made["status"] == CommitStatus.FAILED:
        raise Conflict(f"the commit failed: {made['message']}")
    is_done = made["status"] == CommitStatus.DONE
    text = (
        f"committed {session} to {made['image']}"
        if is_done
        else f"the commit of {session} has begun; for its state, run: bai custom-image list"
    )
    output.print_done(text, made, as_json=as_json)
