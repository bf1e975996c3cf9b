"""`bai vfolder info`: one folder, with whom it is shared, on one screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.text import Text

from .. import output, units
from ..command import Connection, connected, example, json_option, segment, verbose_option
from ..screen import Screen
from ..text import printable

READY = "ready"
_PERMISSIONS = {"ro": "read", "rw": "read and write", "wd": "read, write and delete"}


@click.command(epilog=example("bai vfolder info data"))
@click.argument("name")
@verbose_option
@json_option
@connected
async def info(connection: Connection, name: str, *, verbose: bool, as_json: bool) -> None:
    """Show one folder, the users it is shared with and pending invitations."""
    path = f"/vfolders/{segment(name)}"
    found = await connection.client.get(path)
    grants = await connection.client.get(f"{path}/grants")
    pending = await connection.client.get(f"{path}/invitations", status="pending")
    folder = {**found, "grants": grants["items"], "invitations": pending["items"]}
    if as_json or verbose:
        output.print_thing(folder, as_json=as_json)
    else:
        screen_of(folder).print(output.console())


def screen_of(folder: Mapping[str, Any]) -> Screen:
    """Return the screen of a folder: whose it is, what it holds, who may use it."""
    status = folder["status"]
    style = "green" if status == READY else "yellow"
    title = Text(printable(folder["name"]), style="bold")
    title.append("  ● ", style=f"not bold {style}").append(status, style=style)
    owner = f"project {folder['project']}" if folder["project"] else f"user {folder['owner']}"
    where = f"   {owner} · {folder['usage_mode']} · host {folder['host']}"
    title.append(printable(where), style="not bold dim")
    screen = Screen(title)
    screen.add("Reason", folder["status_info"])
    files = folder["used_files"]
    if files is None:
        screen.add(
            "Holds", f"not counted yet; count now: bai vfolder usage {folder['name']} --fresh"
        )
    else:
        counted = "1 file" if files == 1 else f"{files} files"
        holds = f"{counted}, {units.size(folder['used_bytes'])}"
        screen.pair(("Holds", holds), ("Counted", _relative(folder["counted_at"])))
    mount = folder["mount_permission"]
    screen.pair(
        ("You may", _PERMISSIONS.get(folder["permission"], folder["permission"])),
        ("Mounts", _PERMISSIONS.get(mount, mount)),
    )
    screen.add("Shared", "\n".join(map(_grant, folder["grants"])))
    screen.pair(
        ("Created", _relative(folder["created_at"])),
        ("Last used", _relative(folder["last_used_at"])),
    )
    facts = {
        "mounted by a session": folder["is_mounted"],
        "mounted into every session": folder["is_auto_mounted"],
        "cloneable": folder["cloneable"],
    }
    screen.add("Is", ", ".join(text for text, is_so in facts.items() if is_so))
    screen.add("Path", folder["unmanaged_path"])
    if folder["task"]:
        screen.add("Task", output.cell(folder["task"]))
    if status == READY:
        screen.add("Use", f"bai session create NAME --mount {folder['name']}")
    return screen


def _grant(grant: Mapping[str, Any]) -> str:
    pending = ", invitation pending" if grant["is_pending"] else ""
    return f"{grant['user']} ({grant['permission']}{pending})"


def _relative(text: str | None) -> str:
    when = units.moment(text)
    return "" if when is None else units.relative(when)
