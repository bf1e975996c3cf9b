"""`bai vfolder info`: a folder and its grants on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from bai_services.core.counts import counted
from bai_services.core.folders.vfolders import VfolderStatus

from .. import output, units
from ..command import Connection, connected, example, json_option, segment, verbose_option
from ..screen import Screen
from ..text import printable
from .sharing import PERMISSION_TEXTS


@click.command(epilog=example("bai vfolder info data"))
@click.argument("name")
@verbose_option
@json_option
@connected
async def info(connection: Connection, name: str, *, verbose: bool, as_json: bool) -> None:
    """Show a folder, the users it is shared with, and pending invitations."""
    client, path = connection.client, f"/vfolders/{segment(name)}"
    folder = {
        **await client.get(path),
        "grants": [one async for one in client.items(f"{path}/grants")],
        "invitations": [one async for one in client.items(f"{path}/invitations", status="pending")],
    }
    if as_json or verbose:
        output.print_fields(folder, as_json=as_json)
    else:
        folder_screen(folder).print(output.console())


def folder_screen(folder: Mapping[str, Any]) -> Screen:
    """Return the screen of a folder, which includes its grants and pending invitations."""
    status = folder["status"]
    style = "green" if status == VfolderStatus.READY else "yellow"
    title = Text(printable(folder["name"]), style="bold")
    title.append("  ● ", style=f"not bold {style}").append(status, style=style)
    owner = f"project {folder['project']}" if folder["project"] else f"user {folder['owner']}"
    details = f"   {owner} · {folder['usage_mode']} · host {folder['host']}"
    title.append(printable(details), style="not bold dim")
    screen = Screen(title)
    screen.add("Reason", folder["status_info"])
    files = folder["used_files"]
    if files is None:
        screen.add(
            "Content", f"not counted yet; count it with: bai vfolder usage {folder['name']} --fresh"
        )
    else:
        content = f"{counted(files, 'files')}, {units.size(folder['used_bytes'])}"
        screen.pair(("Content", content), ("Counted", units.relative_text(folder["counted_at"])))
    permission, mount = folder["permission"], folder["mount_permission"]
    allowed = "read, write and manage" if folder["is_managed"] else PERMISSION_TEXTS.get(permission)
    screen.pair(
        ("You may", allowed or "see the folder"),
        ("Mount permission", PERMISSION_TEXTS.get(mount, mount)),
    )
    screen.add("Shared with", _users(folder["grants"], "user"))
    screen.add("Invited", _users(folder["invitations"], "invitee"))
    screen.pair(
        ("Created", units.relative_text(folder["created_at"])),
        ("Last used", units.relative_text(folder["last_used_at"])),
    )
    if folder["purge_at"]:
        screen.add("Purge", units.relative_text(folder["purge_at"]))
    flags = {
        "mounted by a session": folder["is_mounted"],
        "mounted into every session": folder["is_auto_mounted"],
        "cloneable": folder["cloneable"],
    }
    screen.add("Flags", ", ".join(text for text, is_set in flags.items() if is_set))
    screen.add("Path", folder["unmanaged_path"])
    if folder["task"]:
        screen.add("Task", output.cell(folder["task"]))
    if status == VfolderStatus.READY:
        screen.add("Use", f"bai session create NAME --mount {folder['name']}")
    return screen


def _users(rows: Sequence[Mapping[str, Any]], field: str) -> str:
    """Return one line per row: the user in ``field`` and the permission."""
    return "\n".join(f"{row[field]} ({PERMISSION_TEXTS[row['permission']]})" for row in rows)
