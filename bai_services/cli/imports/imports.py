"""`bai import` and `bai imports`: import repositories, archives and files into folders."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import click

from bai_services.client import Client
from bai_services.core.errors import Conflict
from bai_services.core.imports.lifecycle import ENDED
from bai_services.core.imports.sources import SourceKind
from bai_services.core.sessions.lifecycle import Status

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
from ..sessions.waiting import wait_for_status

_COLUMNS = ("id", "source", "folder", "status", "progress", "owner", "created_at", "problem")
_POLL_SECONDS = 1.0
_SKIPPED = {
    "links": "symbolic links",
    "submodules": "submodules",
    "lfs": "contents of Git LFS files",
}


@click.command(
    "import",
    epilog=example(
        "bai import https://github.com/jupyterhub/jupyterhub/tree/main",
        "bai import https://example.org/course.zip --into data --directory course",
        "bai import https://gitlab.com/group/private --branch dev --token --start",
    ),
)
@click.argument("url")
@click.option("--branch", metavar="NAME", help="Branch, tag or commit of a repository.")
@click.option("--path", metavar="PATH", help="Imported file to open in a session.")
@click.option(
    "--kind",
    type=click.Choice(list(SourceKind)),
    help="Kind of the source, if the URL does not show it.",
)
@click.option("--folder", metavar="NAME", help="Name of a new folder.")
@click.option("--host", metavar="NAME", help="Storage host of the new folder.")
@click.option("--project", metavar="NAME", help="Create a folder of this project.")
@click.option("--into", metavar="FOLDER", help="Import into an existing folder.")
@click.option("--directory", metavar="PATH", help="Target directory in the folder.")
@click.option(
    "--token",
    "needs_token",
    is_flag=True,
    help="Read an access token for a private repository from a prompt or standard input.",
)
@click.option("--start", is_flag=True, help="Start a session after the import.")
@click.option("--image", metavar="NAME", help="Image of the session.")
@click.option("--preset", metavar="NAME", help="Resources of the session.")
@click.option("--wait/--no-wait", default=True, help="Wait until the import has ended.")
@json_option
@connected
async def import_(
    connection: Connection,
    url: str,
    *,
    needs_token: bool,
    start: bool,
    image: str | None,
    preset: str | None,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Import a git repository, a zip or tar archive, or a file such as a notebook.

    URL can also be the address of a GitHub or GitLab page. Without --into, the command creates a
    folder.
    """
    if start and not wait:
        raise click.UsageError("--start needs --wait")
    body = _given({"repo": url, **options})
    if needs_token:
        body["token"] = _token()
    client = connection.client
    made = await client.post("/folder-imports", body)
    if not wait:
        text = f"{made['source']} being imported into folder {made['folder']} (import {made['id']})"
        output.print_done(text, made, as_json=as_json)
        return
    made = await _wait_for_import(client, made)
    if made["status"] != "done":
        raise Conflict(f"the import is {made['status']}: {made['problem']}")
    text = f"{made['source']} imported into folder {made['folder']}{_skipped_text(made)}"
    if not start:
        output.print_done(text, made, as_json=as_json)
        return
    click.echo(text, err=True)
    request = {"image": image, "preset": preset, "mounts": [{"vfolder": made["folder_id"]}]}
    session = await client.post("/sessions", _given(request))
    session = await wait_for_status(client, session, Status.RUNNING, None)
    if session["status"] != Status.RUNNING:
        raise Conflict(f"session {session['name']} is {session['status']}")
    address = f"{session['url']}{made['open_path']}"
    output.print_done(f"session {session['name']} runs: {address}", session, as_json=as_json)


@command_group()
def imports() -> None:
    """List and cancel imports into folders; see `bai import`."""


@imports.command("list", epilog=example("bai imports list"))
@page_options
@json_option
@connected
async def list_(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """List imports of the last 30 days."""
    page = await connection.client.get("/folder-imports", **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["progress"] = _progress(item)
    output.print_page(page, _COLUMNS, as_json=as_json, empty="no imports")


@imports.command(epilog=example("bai imports cancel 3f6a…"))
@click.argument("import_id", metavar="ID")
@json_option
@connected
async def cancel(connection: Connection, import_id: str, *, as_json: bool) -> None:
    """Cancel an import; its folder remains."""
    made = await connection.client.delete(f"/folder-imports/{segment(import_id)}")
    output.print_done(f"import of {made['source']} cancelled", made, as_json=as_json)


async def _wait_for_import(client: Client, made: dict[str, Any]) -> dict[str, Any]:
    with output.progress_console().status("importing …") as status:
        while made["status"] not in set(ENDED):
            await asyncio.sleep(_POLL_SECONDS)
            made = await client.get(f"/folder-imports/{made['id']}")
            status.update(f"importing … {_progress(made)}")
    return made


def _token() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Token", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _progress(item: Mapping[str, Any]) -> str:
    received = units.size(item["bytes"])
    if not item["total_bytes"]:
        return received if item["bytes"] else ""
    return f"{received} of {units.size(item['total_bytes'])}"


def _skipped_text(made: Mapping[str, Any]) -> str:
    parts = [f"{made['skipped'][name]} {text}" for name, text in _SKIPPED.items()
             if made["skipped"].get(name)]  # fmt: skip
    return f"; not imported: {', '.join(parts)}" if parts else ""


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
