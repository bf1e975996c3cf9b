"""Folders: keep, share and transfer files."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from bai_services.core.errors import Conflict

from .. import output, units
from ..command import Choice, Connection, connected, example, json_option, segment
from . import sharing as vfolder_sharing
from . import transfer
from .info import info
from .local_files import Patterns, files_below, local_path

_PARALLEL = click.option(
    "--parallel", type=click.IntRange(1, 32), default=4, show_default=True,
    help="How many are on their way at a time.",
)  # fmt: skip
_INCLUDE = click.option(
    "--include", metavar="PATTERN", multiple=True, help="Only what matches, such as '*.csv'; again."
)
_EXCLUDE = click.option(
    "--exclude", metavar="PATTERN", multiple=True, help="Not what matches, such as '.git'; again."
)

COLUMNS = ("name", "permission", "owner", "project", "created_at", "host", "status")
FILE_COLUMNS = ("name", "type", "size", "modified_at")
GRANT_COLUMNS = ("user", "permission")


@click.group()
def vfolder() -> None:
    """Keep, share and transfer files."""


@vfolder.command(
    epilog=example(
        "bai vfolder create data", "bai vfolder create shared --project vision --permission ro"
    )
)
@click.argument("name")
@click.option("--project", metavar="NAME", help="Make it a folder of this project, not your own.")
@click.option("--host", metavar="NAME", help="Storage host; default: the first one allowed.")
@click.option("--permission", type=Choice(["ro", "rw"]), help="What a mount gives at most.")
@click.option("--usage-mode", type=Choice(["general", "model", "data"]), help="What it is for.")
@click.option("--cloneable", is_flag=True, default=None, help="Who may read it may clone it.")
@click.option(
    "--unmanaged-path", metavar="PATH", help="Use a directory that is there (superadmins)."
)
@json_option
@connected
async def create(connection: Connection, name: str, *, as_json: bool, **asked: Any) -> None:
    """Create a folder."""
    body = {"name": name} | {key: value for key, value in asked.items() if value is not None}
    made = await connection.client.post("/vfolders", body)
    output.print_done(f"folder {made['name']} created", made, as_json=as_json)


@vfolder.command("ls", epilog=example("bai vfolder ls", "bai vfolder ls --trash"))
@click.option("--trash", is_flag=True, help="Those that were removed and can be restored.")
@click.option("--sort", metavar="FIELD[,…]", help="With - in front for descending.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Number of entries.",
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="First entry.")
@json_option
@connected
async def list_(
    connection: Connection,
    *,
    trash: bool,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the folders that you may use."""
    query: dict[str, Any] = {"limit": limit, "offset": offset}
    query["status"] = "delete-pending" if trash else "ready"
    if sort:
        query["sort"] = sort
    page = await connection.client.get("/vfolders", **query)
    empty = "the trash is empty" if trash else "no folders yet; create one: bai vfolder create NAME"
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty)


@vfolder.command(epilog=example("bai vfolder share data ann --permission rw"))
@vfolder_sharing.for_user
async def share(
    connection: Connection, name: str, user: str, *, permission: str, as_json: bool
) -> None:
    """Share the folder with USER, who has to accept; again with another permission changes it."""
    grant = await connection.client.put(
        f"/vfolders/{segment(name)}/grants/{segment(user)}", {"permission": permission}
    )
    text = f"folder {name} is shared with {user} ({permission})"
    if grant["is_pending"]:
        text = (
            f"{user} is invited to folder {name} ({permission}) and can use it after "
            f"`bai vfolder accept {grant['invitation_id']}`"
        )
    output.print_done(text, grant, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder unshare data ann"))
@click.argument("name")
@click.argument("user")
@json_option
@connected
async def unshare(connection: Connection, name: str, user: str, *, as_json: bool) -> None:
    """Take USER's permission away; a running session of theirs keeps its mount until it stops."""
    await connection.client.delete(f"/vfolders/{segment(name)}/grants/{segment(user)}")
    done = {"vfolder": name, "user": user}
    text = f"folder {name} is not shared with {user}; a session that runs keeps it until it stops"
    output.print_done(text, done, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder rename data data-2024"))
@click.argument("name")
@click.argument("new_name")
@json_option
@connected
async def rename(connection: Connection, name: str, new_name: str, *, as_json: bool) -> None:
    """Give the folder another name."""
    changed = await connection.client.patch(f"/vfolders/{segment(name)}", {"name": new_name})
    output.print_done(f"folder {name} is now {changed['name']}", changed, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder files data raw/2024"))
@click.argument("name")
@click.argument("path", default="")
@json_option
@connected
async def files(connection: Connection, name: str, path: str, *, as_json: bool) -> None:
    """List what lies in the folder, or in the directory PATH of it."""
    listed = connection.client.items(f"/vfolders/{segment(name)}/files", path=path)
    entries = [entry async for entry in listed]
    if as_json:
        output.print_json({"items": entries, "total": len(entries)})
        return
    rows = [{**entry, "size": units.size(entry["size"])} for entry in entries]
    empty = f"nothing here yet; upload something: bai vfolder upload {name} FILE"
    output.print_table(rows, FILE_COLUMNS, empty=empty)


@vfolder.command(
    epilog=example("bai vfolder upload data train.csv images --to raw --exclude '.git'")
)
@click.argument("name")
@click.argument(
    "files", metavar="FILE…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option("--to", "directory", metavar="PATH", default="", help="Directory in the folder.")
@click.option("--checksum", is_flag=True, help="Check every piece of big files with SHA-256.")
@_PARALLEL
@_INCLUDE
@_EXCLUDE
@json_option
@connected
async def upload(
    connection: Connection,
    name: str,
    files: tuple[Path, ...],
    *,
    directory: str,
    checksum: bool,
    parallel: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
) -> None:
    """Copy files, or directories with everything in them, into the folder.

    Big files go on where an earlier try ended.
    """
    found = files_below(files, Patterns(include, exclude))
    sendings = [
        transfer.Sending(file, f"{directory.strip('/')}/{target}".lstrip("/"), (await _size(file)))
        for file, target in found
    ]
    folder = await connection.client.get(f"/vfolders/{segment(name)}")
    with transfer.shown() as bar:
        uploader = transfer.Uploader(connection.client, f"/vfolders/{folder['id']}", bar, checksum)
        await uploader.send(sendings, parallel)
    done = [{"path": item.target, "size": item.size} for item in sendings]
    _print_transfer(done, f"copied to folder {name}", as_json=as_json)


@vfolder.command(epilog=example("bai vfolder download data results --to ."))
@click.argument("name")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True)
@click.option(
    "-o", "--to", "folder", metavar="DIRECTORY", default=".",
    type=click.Path(file_okay=False, path_type=Path), help="Where to; default: here.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that exist.")
@_PARALLEL
@_INCLUDE
@_EXCLUDE
@json_option
@connected
async def download(
    connection: Connection,
    name: str,
    paths: tuple[str, ...],
    *,
    folder: Path,
    force: bool,
    parallel: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
) -> None:
    """Copy files, or directories with everything in them, out of the folder.

    Files go on where an earlier try ended.
    """
    patterns = Patterns(include, exclude)
    source = f"/vfolders/{segment(name)}"
    items = [
        transfer.Fetching(entry["path"], local_path(folder, target), entry["size"], entry["etag"])
        for path in paths
        for entry, target in await _files_at(connection, name, path)
        if patterns.take(target)
    ]
    with transfer.shown() as bar:

        async def fetch(item: transfer.Fetching) -> None:
            await transfer.fetch(connection.client, source, item, bar, replaces=force)

        await transfer.in_parallel(fetch, items, parallel)
    done = [{"path": i.source, "file": str(i.file), "size": i.size} for i in items]
    _print_transfer(done, f"copied to {folder}", as_json=as_json)


@vfolder.command(epilog=example("bai vfolder rm data", "bai vfolder rm data raw/2023 --recursive"))
@click.argument("name")
@click.argument("paths", metavar="[PATH…]", nargs=-1)
@click.option("-r", "--recursive", is_flag=True, help="Directories with everything in them too.")
@json_option
@connected
async def rm(
    connection: Connection, name: str, paths: tuple[str, ...], *, recursive: bool, as_json: bool
) -> None:
    """Put the folder in the trash; with PATH remove these files of it for good."""
    path = f"/vfolders/{segment(name)}"
    if not paths:
        await connection.client.delete(path)
        output.print_done(
            f"folder {name} is in the trash; bai vfolder restore {name} brings it back",
            {"vfolder": name, "status": "delete-pending"},
            as_json=as_json,
        )
        return
    for inside in paths:
        more = {"recursive": "true"} if recursive else {}
        await connection.client.delete(f"{path}/content", path=inside, **more)
    done = {"vfolder": name, "removed": list(paths)}
    output.print_done(f"removed {', '.join(paths)} from folder {name}", done, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder restore data"))
@click.argument("name")
@json_option
@connected
async def restore(connection: Connection, name: str, *, as_json: bool) -> None:
    """Take the folder out of the trash."""
    found = await connection.client.post(f"/vfolders/{segment(name)}/restore")
    output.print_done(f"folder {name} is back", found, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder purge data --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@connected
async def purge(connection: Connection, name: str, *, yes: bool, as_json: bool) -> None:
    """Delete a folder of the trash for good, with every file in it."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask; say --yes")
    if not yes:
        click.confirm(f"Delete folder {name} and all its files for good?", abort=True, err=True)
    going = await connection.client.post(f"/vfolders/{segment(name)}/purge")
    output.print_done(f"folder {name} and its files are being deleted", going, as_json=as_json)


async def _files_at(
    connection: Connection, name: str, path: str
) -> list[tuple[dict[str, Any], str]]:
    """Return the files that ``path`` means, as they are listed, and where each goes.

    A directory means everything below it; links in it are left out.
    """
    top = path.strip("/")
    waiting, found = [top], []
    files = f"/vfolders/{segment(name)}/files"
    while waiting:
        directory = waiting.pop()
        try:
            entries = [entry async for entry in connection.client.items(files, path=directory)]
        except Conflict:
            # No directory: a file, or nothing, which the download then says.
            found.append(await _listed(connection, files, directory))
            continue
        for entry in entries:
            inside = f"{directory}/{entry['name']}".lstrip("/")
            if entry["type"] == "directory":
                waiting.append(inside)
            elif entry["type"] == "file":
                found.append({**entry, "path": inside})
    parent = top.rpartition("/")[0]
    found.sort(key=lambda entry: entry["path"])
    return [(entry, entry["path"].removeprefix(parent).lstrip("/")) for entry in found]


async def _listed(connection: Connection, files: str, path: str) -> dict[str, Any]:
    parent, _, base = path.rpartition("/")
    async for entry in connection.client.items(files, path=parent, name__contains=base):
        if entry["name"] == base:
            return {**entry, "path": path}
    return {"path": path, "size": 0, "etag": None}


async def _size(file: Path) -> int:
    return (await asyncio.to_thread(file.stat)).st_size


def _print_transfer(done: list[dict[str, Any]], text: str, *, as_json: bool) -> None:
    total = sum(item["size"] for item in done)
    many = transfer.counted(done)
    output.print_done(f"{many}, {transfer.size(total)}, {text}", {"items": done}, as_json=as_json)


for _command in (info, *vfolder_sharing.COMMANDS):
    vfolder.add_command(_command)
