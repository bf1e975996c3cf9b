"""`bai vfolder`: directories, copies, usage, owners, invitations, storage hosts and quotas."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import click

from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import MEM, parse_amount

from .. import output
from ..command import (
    Choice,
    Connection,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)
from . import transfer

# The words that the web UI shows.
PERMISSION_TEXTS = {"ro": "read", "rw": "read and write", "wd": "read, write and delete"}
INVITATION_COLUMNS = ("id", "vfolder", "inviter", "invitee", "permission", "status")
HOST_COLUMNS = ("name", "backend", "status", "free_bytes", "capabilities", "message")
QUOTA_COLUMNS = (
    "host",
    "scope",
    "owner",
    "project",
    "used",
    "limit",
    "percent",
    "is_enforced",
    "counted_at",
)
_SCOPE = re.compile(r"(user|project):.+")


def for_user(run: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Add the arguments NAME (folder) and USER, --permission and --json to a command."""
    command = json_option(connected(run))
    command = click.option(
        "--permission",
        type=Choice(["ro", "rw"]),
        default="ro",
        show_default=True,
        help="Permission of USER: read (ro) or read and write (rw).",
    )(command)
    return click.argument("name")(click.argument("user")(command))


@click.command(epilog=example("bai vfolder mkdir data raw/2024 --parents"))
@click.argument("name")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True)
@click.option("-p", "--parents", is_flag=True, help="Do not fail if a directory exists.")
@json_option
@connected
async def mkdir(
    connection: Connection, name: str, paths: tuple[str, ...], *, parents: bool, as_json: bool
) -> None:
    """Create directories in a folder, and missing parent directories."""
    body = {"paths": list(paths), "exists_ok": parents}
    created = await connection.client.post(f"/vfolders/{segment(name)}/directories", body)
    output.print_done(f"created {', '.join(created)}", {"made": created}, as_json=as_json)


@click.command(epilog=example("bai vfolder mv data raw/a.csv raw/b.csv"))
@click.argument("name")
@click.argument("source")
@click.argument("target")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
@connected
async def mv(
    connection: Connection, name: str, source: str, target: str, *, force: bool, as_json: bool
) -> None:
    """Move or rename a file or directory inside a folder."""
    body = {"source": source, "target": target, "replace": force}
    entry = await connection.client.post(f"/vfolders/{segment(name)}/move", body)
    output.print_done(f"moved {source} to {target}", entry, as_json=as_json)


@click.command(epilog=example("bai vfolder cp data raw backup"))
@click.argument("name")
@click.argument("source")
@click.argument("target")
@json_option
@connected
async def cp(connection: Connection, name: str, source: str, target: str, *, as_json: bool) -> None:
    """Copy a file or directory inside a folder; directories are copied recursively."""
    entry = await connection.client.post(
        f"/vfolders/{segment(name)}/copy",
        {"source": source, "target": target},
        timeout_seconds=transfer.STALL_SECONDS,
    )
    output.print_done(f"copied {source} to {target}", entry, as_json=as_json)


@click.command(epilog=example("bai vfolder usage data --fresh"))
@click.argument("name")
@click.option("--fresh", is_flag=True, help="Count now; this may take minutes for large folders.")
@json_option
@connected
async def usage(connection: Connection, name: str, *, fresh: bool, as_json: bool) -> None:
    """Show the number of files and bytes in a folder, and when they were counted."""
    counted = await connection.client.get(
        f"/vfolders/{segment(name)}/usage",
        timeout_seconds=transfer.STALL_SECONDS,
        fresh=str(fresh).lower(),
    )
    output.print_fields(counted, as_json=as_json)


@click.command(epilog=example("bai vfolder clone data data-copy --project vision"))
@click.argument("name")
@click.argument("new_name")
@click.option(
    "--host", metavar="NAME", help="Storage host of the copy. Default: the host of the folder."
)
@click.option(
    "--project", metavar="NAME", help="Create the copy for this project instead of for yourself."
)
@json_option
@connected
async def clone(
    connection: Connection,
    name: str,
    new_name: str,
    *,
    host: str | None,
    project: str | None,
    as_json: bool,
) -> None:
    """Copy a cloneable folder to a new folder; the copy runs in the background."""
    fields = {"name": new_name, "host": host, "project": project}
    body = {key: value for key, value in fields.items() if value is not None}
    clone = await connection.client.post(f"/vfolders/{segment(name)}/clone", body)
    output.print_done(f"folder {name} is being cloned to {new_name}", clone, as_json=as_json)


@click.command("change-owner", epilog=example("bai vfolder change-owner data ann"))
@click.argument("name")
@click.argument("user")
@json_option
@connected
async def change_owner(connection: Connection, name: str, user: str, *, as_json: bool) -> None:
    """Transfer a folder to another owner, in the background (superadmins only)."""
    task = await connection.client.put(f"/vfolders/{segment(name)}/owner", {"user": user})
    output.print_done(f"folder {name} is being transferred to {user}", task, as_json=as_json)


@click.command(epilog=example("bai vfolder invite data ann@example.org --permission rw"))
@for_user
async def invite(
    connection: Connection, name: str, user: str, *, permission: str, as_json: bool
) -> None:
    """Invite USER (name or e-mail address) to a folder."""
    invitation = await connection.client.post(
        f"/vfolders/{segment(name)}/invitations", {"user": user, "permission": permission}
    )
    text = f"invited {user} to folder {name} ({permission})"
    output.print_done(text, invitation, as_json=as_json)


@click.command(epilog=example("bai vfolder invitations --all"))
@click.option(
    "--all", "shows_all", is_flag=True, help="Include accepted, declined and withdrawn invitations."
)
@page_options
@json_option
@connected
async def invitations(
    connection: Connection,
    *,
    shows_all: bool,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the pending invitations that you have received or sent."""
    query: dict[str, Any] = {} if shows_all else {"status": "pending"}
    query |= page_query(sort, limit, offset)
    page = await connection.client.get("/vfolder-invitations", **query)
    empty = "no invitations; invite a user to a folder: bai vfolder invite NAME USER"
    output.print_page(
        page,
        INVITATION_COLUMNS,
        as_json=as_json,
        empty=empty,
        texts={"permission": PERMISSION_TEXTS},
    )


@click.command(epilog=example("bai vfolder accept 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("invitation")
@json_option
@connected
async def accept(connection: Connection, invitation: str, *, as_json: bool) -> None:
    """Accept an invitation, by the id that `bai vfolder invitations` lists."""
    path = f"/vfolder-invitations/{segment(invitation)}/accept"
    done = await connection.client.post(path)
    output.print_done(f"folder {done['vfolder']} is now shared with you", done, as_json=as_json)


@click.command(epilog=example("bai vfolder decline 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("invitation")
@json_option
@connected
async def decline(connection: Connection, invitation: str, *, as_json: bool) -> None:
    """Decline an invitation, by the id that `bai vfolder invitations` lists."""
    path = f"/vfolder-invitations/{segment(invitation)}/decline"
    done = await connection.client.post(path)
    text = f"declined the invitation to folder {done['vfolder']}"
    output.print_done(text, done, as_json=as_json)


@click.command(epilog=example("bai vfolder withdraw 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("invitation")
@json_option
@connected
async def withdraw(connection: Connection, invitation: str, *, as_json: bool) -> None:
    """Withdraw an invitation that you have sent."""
    await connection.client.delete(f"/vfolder-invitations/{segment(invitation)}")
    output.print_done("invitation withdrawn", {"id": invitation}, as_json=as_json)


@click.command(epilog=example("bai vfolder leave data"))
@click.argument("name")
@json_option
@connected
async def leave(connection: Connection, name: str, *, as_json: bool) -> None:
    """Give up your access to a folder that another user shares with you."""
    me = await connection.client.get("/me")
    path = f"/vfolders/{segment(name)}/grants/{segment(me['username'])}"
    await connection.client.delete(path)
    text = f"folder {name} is no longer shared with you"
    output.print_done(text, {"vfolder": name}, as_json=as_json)


@click.command(epilog=example("bai vfolder hosts"))
@page_options
@json_option
@connected
async def hosts(
    connection: Connection, *, sort: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List the storage hosts with status, free space and capabilities."""
    page = await connection.client.get("/storage-hosts", **page_query(sort, limit, offset))
    if not as_json:
        for item in page["items"]:
            item["free_bytes"] = transfer.size(item["free_bytes"])
    empty = "no storage host is available; an administrator must set BAI_STORAGE_HOSTS"
    output.print_page(page, HOST_COLUMNS, as_json=as_json, empty=empty)


@click.command(
    epilog=example(
        "bai vfolder quota",
        "bai vfolder quota user:6f1c2d3e-0000-4000-8000-000000000000 --limit 50g",
    )
)
@click.argument("scope", required=False)
@click.option(
    "--host",
    metavar="NAME",
    help="With --limit: storage host of the quota. Default: the default host.",
)
@click.option(
    "--limit",
    metavar="AMOUNT",
    help="New limit: an amount such as 50g, 'none' to remove the limit, or 'policy' for the limit "
    "of the policy.",
)
@json_option
@connected
async def quota(
    connection: Connection,
    scope: str | None,
    *,
    host: str | None,
    limit: str | None,
    as_json: bool,
) -> None:
    """Show storage quotas and usage. With SCOPE and --limit, set a quota (superadmins only).

    SCOPE is user:ID or project:ID.
    """
    if limit is None:
        query: dict[str, Any] = {"scope": scope} if scope else {}
        scopes = [item async for item in connection.client.items("/quota-scopes", **query)]
        total = len(scopes)
        page: dict[str, Any] = {"items": scopes, "total": total, "offset": 0, "limit": total}
        if not as_json:
            for item in page["items"]:
                for column in ("used", "limit"):
                    amount = item[f"{column}_bytes"]
                    item[column] = None if amount is None else transfer.size(amount)
        empty = "no quotas yet; a quota appears with the first folder: bai vfolder create NAME"
        output.print_page(page, QUOTA_COLUMNS, as_json=as_json, empty=empty)
        return
    if scope is None or not _SCOPE.fullmatch(scope):
        raise InvalidRequest("--limit needs a scope: user:ID or project:ID", field="scope")
    known = [item async for item in connection.client.items("/storage-hosts")]
    host = host or next(item["name"] for item in known if item["is_default"])
    special: dict[str, int | None] = {"none": -1, "policy": None}
    limit_bytes = special[limit] if limit in special else parse_amount(MEM, limit)
    done = await connection.client.put(
        f"/quota-scopes/{segment(host)}/{segment(scope)}", {"limit_bytes": limit_bytes}
    )
    output.print_done(f"limit of {scope} on {host} set to {limit}", done, as_json=as_json)


COMMANDS = (
    mkdir, mv, cp, usage, clone, change_owner, invite, invitations, accept, decline, withdraw,
    leave, hosts, quota,
)  # fmt: skip
