"""`bai vfolder`: create, share and delete folders, and transfer files."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bai_services.core.counts import counted
from bai_services.core.errors import Conflict
from bai_services.core.folders.vfolders import VfolderStatus

from .. import output, units
from ..command import (
    Choice,
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)
from . import sharing as vfolder_sharing
from . import transfer
from .info import info
from .local_files import CompletedFiles, Patterns, files_below, local_path

_PARALLEL = click.option(
    "--parallel", type=click.IntRange(1, 32), default=4, show_default=True,
    help="Number of concurrent transfers.",
)  # fmt: skip
_INCLUDE = click.option(
    "--include",
    metavar="PATTERN",
    multiple=True,
    help="Transfer only paths that match, for example '*.csv'. May be repeated.",
)
_EXCLUDE = click.option(
    "--exclude",
    metavar="PATTERN",
    multiple=True,
    help="Skip paths that match, for example '.git'. May be repeated.",
)

COLUMNS = ("name", "permission", "owner", "project", "created_at", "host", "status")
TRASH_COLUMNS = ("name", "owner", "project", "purge_at", "host", "permission")
FILE_COLUMNS = ("name", "type", "size", "modified_at")
GRANT_COLUMNS = ("user", "permission")


@dataclass(frozen=True, slots=True)
class _FolderFile:
    """A file of a folder, and its path below the target directory of a download."""

    path: str
    size: int
    etag: str | None
    target: str


@command_group()
def vfolder() -> None:
    """Store, share and transfer files."""


@vfolder.command(
    epilog=example(
        "bai vfolder create data", "bai vfolder create shared --project vision --permission ro"
    )
)
@click.argument("name")
@click.option(
    "--project", metavar="NAME", help="Create the folder for this project instead of for yourself."
)
@click.option("--host", metavar="NAME", help="Storage host. Default: the default host.")
@click.option(
    "--permission",
    type=Choice(["ro", "rw"]),
    help="Default permission of a mount, and permission of project members: read (ro), or read and "
    "write (rw, the default).",
)
@click.option(
    "--usage-mode",
    type=Choice(["general", "model", "data"]),
    help="Purpose of the folder. Default: general.",
)
@click.option(
    "--cloneable",
    is_flag=True,
    default=None,
    help="Allow users with read permission to clone the folder.",
)
@click.option(
    "--unmanaged-path", metavar="PATH", help="Use an existing directory (superadmins only)."
)
@json_option
@connected
async def create(connection: Connection, name: str, *, as_json: bool, **fields: Any) -> None:
    """Create a folder."""
    body = {"name": name} | {key: value for key, value in fields.items() if value is not None}
    folder = await connection.client.post("/vfolders", body)
    output.print_done(f"folder {folder['name']} created", folder, as_json=as_json)


@vfolder.command("ls", epilog=example("bai vfolder ls", "bai vfolder ls --trash"))
@click.option("--trash", is_flag=True, help="List the folders in the trash instead.")
@page_options
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
    status = VfolderStatus.DELETE_PENDING if trash else VfolderStatus.READY
    query = page_query(sort, limit, offset) | {"status": status.value}
    page = await connection.client.get("/vfolders", **query)
    empty = "the trash is empty" if trash else "no folders yet; create one: bai vfolder create NAME"
    texts = {"permission": vfolder_sharing.PERMISSION_TEXTS}
    columns = TRASH_COLUMNS if trash else COLUMNS
    output.print_page(page, columns, as_json=as_json, empty=empty, texts=texts)


@vfolder.command(epilog=example("bai vfolder share data ann --permission rw"))
@vfolder_sharing.for_user
async def share(
    connection: Connection, name: str, user: str, *, permission: str, as_json: bool
) -> None:
    """Invite USER to a folder. Repeat with another --permission to change an existing share."""
    grant = await connection.client.put(
        f"/vfolders/{segment(name)}/grants/{segment(user)}", {"permission": permission}
    )
    text = f"folder {name} is shared with {user} ({permission})"
    if grant["is_pending"]:
        text = (
            f"invited {user} to folder {name} ({permission}); "
            f"they accept with: bai vfolder accept {grant['invitation_id']}"
        )
    output.print_done(text, grant, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder unshare data ann"))
@click.argument("name")
@click.argument("user")
@json_option
@connected
async def unshare(connection: Connection, name: str, user: str, *, as_json: bool) -> None:
    """Revoke USER's access to a folder; running sessions keep the mount until they stop."""
    await connection.client.delete(f"/vfolders/{segment(name)}/grants/{segment(user)}")
    done = {"vfolder": name, "user": user}
    text = (
        f"folder {name} is no longer shared with {user}; "
        "running sessions keep the mount until they stop"
    )
    output.print_done(text, done, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder rename data data-2024"))
@click.argument("name")
@click.argument("new_name")
@json_option
@connected
async def rename(connection: Connection, name: str, new_name: str, *, as_json: bool) -> None:
    """Rename a folder."""
    changed = await connection.client.patch(f"/vfolders/{segment(name)}", {"name": new_name})
    output.print_done(f"folder {name} renamed to {changed['name']}", changed, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder files data raw/2024"))
@click.argument("name")
@click.argument("path", default="")
@json_option
@connected
async def files(connection: Connection, name: str, path: str, *, as_json: bool) -> None:
    """List the files and directories in a folder, or in its directory PATH."""
    listed = connection.client.items(f"/vfolders/{segment(name)}/files", path=path)
    entries = [entry async for entry in listed]
    if as_json:
        output.print_json({"items": entries, "total": len(entries)})
        return
    rows = [{**entry, "size": units.size(entry["size"])} for entry in entries]
    empty = f"no files; upload one: bai vfolder upload {name} FILE"
    output.print_table(rows, FILE_COLUMNS, empty=empty)


@vfolder.command(
    epilog=example("bai vfolder upload data train.csv images --to raw --exclude '.git'")
)
@click.argument("name")
@click.argument(
    "local_paths",
    metavar="FILE…",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
@click.option(
    "--to",
    "directory",
    metavar="PATH",
    default="",
    help="Target directory in the folder. Default: its top level.",
)
@click.option("--checksum", is_flag=True, help="Verify each chunk of large files with SHA-256.")
@_PARALLEL
@_INCLUDE
@_EXCLUDE
@json_option
@connected
async def upload(
    connection: Connection,
    name: str,
    local_paths: tuple[Path, ...],
    *,
    directory: str,
    checksum: bool,
    parallel: int,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
) -> None:
    """Upload files and directories to a folder.

    If the upload of a file of 8 MiB or more is interrupted, the same command resumes it.
    """
    files = files_below(local_paths, Patterns(include, exclude))
    uploads = [
        transfer.Upload(file, f"{directory.strip('/')}/{target}".lstrip("/"), (await _size(file)))
        for file, target in files
    ]
    folder = await connection.client.get(f"/vfolders/{segment(name)}")
    with transfer.progress_bars() as bars:
        uploader = transfer.Uploader(
            connection.client, f"/vfolders/{folder['id']}", bars, has_checksum=checksum
        )
        await uploader.send(uploads, parallel)
    done = [{"path": item.target, "size": item.size} for item in uploads]
    _print_transfer(done, f"uploaded to folder {name}", as_json=as_json)


@vfolder.command(epilog=example("bai vfolder download data results --to ."))
@click.argument("name")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True)
@click.option(
    "-o", "--to", "folder", metavar="DIRECTORY", default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="Target directory. Default: the current one.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace existing files.")
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
    """Download files and directories from a folder.

    If a download is interrupted, the same command resumes it: files that are already complete
    are not downloaded again.
    """
    patterns = Patterns(include, exclude)
    source = f"/vfolders/{segment(name)}"
    downloads = [
        transfer.Download(file.path, local_path(folder, file.target), file.size, file.etag)
        for path in paths
        for file in await _files_at(connection, name, path)
        if patterns.matches(file.target)
    ]
    completed = CompletedFiles(folder, [name, *paths])
    with transfer.progress_bars() as bars:

        async def fetch(item: transfer.Download) -> None:
            await transfer.fetch(connection.client, source, item, bars, completed, replaces=force)

        await transfer.in_parallel(fetch, downloads, parallel)
    completed.remove()
    done = [{"path": i.source, "file": str(i.file), "size": i.size} for i in downloads]
    _print_transfer(done, f"downloaded to {folder}", as_json=as_json)


@vfolder.command(epilog=example("bai vfolder rm data", "bai vfolder rm data raw/2023 --recursive"))
@click.argument("name")
@click.argument("paths", metavar="[PATH…]", nargs=-1)
@click.option("-r", "--recursive", is_flag=True, help="Delete directories recursively.")
@json_option
@connected
async def rm(
    connection: Connection, name: str, paths: tuple[str, ...], *, recursive: bool, as_json: bool
) -> None:
    """Move a folder to the trash. With PATH, permanently delete only the files at PATH."""
    path = f"/vfolders/{segment(name)}"
    if not paths:
        await connection.client.delete(path)
        output.print_done(
            f"folder {name} moved to the trash; restore it with: bai vfolder restore {name}",
            {"vfolder": name, "status": VfolderStatus.DELETE_PENDING.value},
            as_json=as_json,
        )
        return
    for inside in paths:
        query = {"recursive": "true"} if recursive else {}
        await connection.client.delete(f"{path}/content", path=inside, **query)
    done = {"vfolder": name, "removed": list(paths)}
    output.print_done(f"deleted {', '.join(paths)} from folder {name}", done, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder restore data"))
@click.argument("name")
@json_option
@connected
async def restore(connection: Connection, name: str, *, as_json: bool) -> None:
    """Restore a folder from the trash."""
    folder = await connection.client.post(f"/vfolders/{segment(name)}/restore")
    output.print_done(f"folder {name} restored", folder, as_json=as_json)


@vfolder.command(epilog=example("bai vfolder purge data --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connected
async def purge(connection: Connection, name: str, *, yes: bool, as_json: bool) -> None:
    """Permanently delete a folder in the trash and all its files."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("standard input is not a terminal; pass --yes to confirm")
    if not yes:
        click.confirm(f"Permanently delete folder {name} and all its files?", abort=True, err=True)
    folder = await connection.client.post(f"/vfolders/{segment(name)}/purge")
    output.print_done(f"folder {name} and its files are being deleted", folder, as_json=as_json)


async def _files_at(connection: Connection, name: str, path: str) -> list[_FolderFile]:
    """Return the file ``path`` of a folder, or all files below the directory ``path``.

    Symbolic links are skipped. The result is sorted by path.
    """
    top = path.strip("/")
    parent = top.rpartition("/")[0]
    pending = [top]
    files: list[_FolderFile] = []
    url = f"/vfolders/{segment(name)}/files"

    def add(path: str, size: int, etag: str | None) -> None:
        files.append(_FolderFile(path, size, etag, path.removeprefix(parent).lstrip("/")))

    while pending:
        directory = pending.pop()
        try:
            entries = [entry async for entry in connection.client.items(url, path=directory)]
        except Conflict:
            # The path is a file. If it is deleted before the download, the download reports it as
            # missing.
            add(directory, *await _stat_file(connection, url, directory))
            continue
        for entry in entries:
            inside = f"{directory}/{entry['name']}".lstrip("/")
            if entry["type"] == "directory":
                pending.append(inside)
            elif entry["type"] == "file":
                add(inside, entry["size"], entry["etag"])
    return sorted(files, key=lambda file: file.path)


async def _stat_file(connection: Connection, url: str, path: str) -> tuple[int, str | None]:
    """Return size in bytes and ETag of a file; 0 and None if the file does not exist."""
    parent, _, base = path.rpartition("/")
    async for entry in connection.client.items(url, path=parent, name__contains=base):
        if entry["name"] == base:
            return entry["size"], entry["etag"]
    return 0, None


async def _size(file: Path) -> int:
    return (await asyncio.to_thread(file.stat)).st_size


def _print_transfer(done: list[dict[str, Any]], text: str, *, as_json: bool) -> None:
    total = transfer.size(sum(item["size"] for item in done))
    count = counted(len(done), "files")
    output.print_done(f"{count}, {total}, {text}", {"items": done}, as_json=as_json)


for _command in (info, *vfolder_sharing.COMMANDS):
    vfolder.add_command(_command)
