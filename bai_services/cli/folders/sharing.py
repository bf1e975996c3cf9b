"""`bai vfolder`: what lies inside moved about, invitations, clones, hosts and quotas."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import click

from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import MEM, parse_amount

from .. import output
from ..command import Choice, Connection, connected, example, json_option, segment
from . import transfer

INVITATION_COLUMNS = ("id", "vfolder", "inviter", "invitee", "permission", "status")
HOST_COLUMNS = ("name", "backend", "status", "free_bytes", "capabilities", "message")
QUOTA_COLUMNS = ("host", "scope", "owner", "project", "used", "limit", "is_enforced", "counted_at")
_SCOPE = re.compile(r"(user|project):.+")


def for_user(run: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Give a command a folder's NAME, a USER and the permission that they get."""
    permission = Choice(["ro", "rw"])
    command = json_option(connected(run))
    command = click.option(
        "--permission",
        type=permission,
        default="ro",
        show_default=True,
        help="ro: read; rw: also write.",
    )(command)
    return click.argument("name")(click.argument("user")(command))


@click.command(epilog=example("bai vfolder mkdir data raw/2024 --parents"))
@click.argument("name")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True)
@click.option("-p", "--parents", is_flag=True, help="Those that exist are fine.")
@json_option
@connected
async def mkdir(
    connection: Connection, name: str, paths: tuple[str, ...], *, parents: bool, as_json: bool
) -> None:
    """Make directories, and those on the way to them."""
    body = {"paths": list(paths), "exists_ok": parents}
    made = await connection.client.post(f"/vfolders/{segment(name)}/directories", body)
    output.print_done(f"made {', '.join(made)}", {"made": made}, as_json=as_json)


@click.command(epilog=example("bai vfolder mv data raw/a.csv raw/b.csv"))
@click.argument("name")
@click.argument("source")
@click.argument("target")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@json_option
@connected
async def mv(
    connection: Connection, name: str, source: str, target: str, *, force: bool, as_json: bool
) -> None:
    """Move or rename something inside the folder."""
    body = {"source": source, "target": target, "replace": force}
    entry = await connection.client.post(f"/vfolders/{segment(name)}/move", body)
    output.print_done(f"{source} is now {target}", entry, as_json=as_json)


@click.command(epilog=example("bai vfolder cp data raw backup"))
@click.argument("name")
@click.argument("source")
@click.argument("target")
@json_option
@connected
async def cp(connection: Connection, name: str, source: str, target: str, *, as_json: bool) -> None:
    """Copy something inside the folder; a directory with everything in it."""
    entry = await connection.client.post(
        f"/vfolders/{segment(name)}/copy",
        {"source": source, "target": target},
        timeout_seconds=transfer.STALL_SECONDS,
    )
    output.print_done(f"{source} is copied to {target}", entry, as_json=as_json)


@click.command(epilog=example("bai vfolder usage data --fresh"))
@click.argument("name")
@click.option("--fresh", is_flag=True, help="Count now, however long that takes.")
@json_option
@connected
async def usage(connection: Connection, name: str, *, fresh: bool, as_json: bool) -> None:
    """Show how many files and bytes the folder holds, and when that was counted."""
    found = await connection.client.get(
        f"/vfolders/{segment(name)}/usage",
        timeout_seconds=transfer.STALL_SECONDS,
        fresh=str(fresh).lower(),
    )
    output.print_thing(found, as_json=as_json)


@click.command(epilog=example("bai vfolder clone data data-copy --project vision"))
@click.argument("name")
@click.argument("new_name")
@click.option("--host", metavar="NAME", help="Storage host; default: that of the folder.")
@click.option("--project", metavar="NAME", help="Make it a folder of this project, not your own.")
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
    """Copy a folder that is cloneable to one of your own, in the background."""
    asked = {"name": new_name, "host": host, "project": project}
    body = {key: value for key, value in asked.items() if value is not None}
    made = await connection.client.post(f"/vfolders/{segment(name)}/clone", body)
    output.print_done(f"folder {name} is being cloned to {new_name}", made, as_json=as_json)


@click.command("change-owner", epilog=example("bai vfolder change-owner data ann"))
@click.argument("name")
@click.argument("user")
@json_option
@connected
async def change_owner(connection: Connection, name: str, user: str, *, as_json: bool) -> None:
    """Give the folder to USER, in the background (superadmins)."""
    moved = await connection.client.put(f"/vfolders/{segment(name)}/owner", {"user": user})
    output.print_done(f"folder {name} goes to {user}", moved, as_json=as_json)


@click.command(epilog=example("bai vfolder invite data ann@example.org --permission rw"))
@for_user
async def invite(
    connection: Connection, name: str, user: str, *, permission: str, as_json: bool
) -> None:
    """Invite USER, by name or e-mail address, to the folder."""
    made = await connection.client.post(
        f"/vfolders/{segment(name)}/invitations", {"user": user, "permission": permission}
    )
    output.print_done(f"{user} is invited to folder {name} ({permission})", made, as_json=as_json)


@click.command(epilog=example("bai vfolder invitations --all"))
@click.option("--all", "shows_all", is_flag=True, help="Those that have ended too.")
@json_option
@connected
async def invitations(connection: Connection, *, shows_all: bool, as_json: bool) -> None:
    """List the invitations that you received or sent."""
    query: dict[str, Any] = {} if shows_all else {"status": "pending"}
    page = await connection.client.get("/vfolder-invitations", **query)
    empty = "no invitations; invite a user to a folder: bai vfolder invite NAME USER"
    output.print_page(page, INVITATION_COLUMNS, as_json=as_json, empty=empty)


@click.command(epilog=example("bai vfolder accept 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("invitation")
@json_option
@connected
async def accept(connection: Connection, invitation: str, *, as_json: bool) -> None:
    """Say yes to an invitation."""
    path = f"/vfolder-invitations/{segment(invitation)}/accept"
    done = await connection.client.post(path)
    output.print_done(f"folder {done['vfolder']} is shared with you", done, as_json=as_json)


@click.command(epilog=example("bai vfolder decline 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("invitation")
@json_option
@connected
async def decline(connection: Connection, invitation: str, *, as_json: bool) -> None:
    """Say no to an invitation."""
    path = f"/vfolder-invitations/{segment(invitation)}/decline"
    done = await connection.client.post(path)
    output.print_done(f"declined folder {done['vfolder']}", done, as_json=as_json)


@click.command(epilog=example("bai vfolder withdraw 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("invitation")
@json_option
@connected
async def withdraw(connection: Connection, invitation: str, *, as_json: bool) -> None:
    """Take an invitation back."""
    await connection.client.delete(f"/vfolder-invitations/{segment(invitation)}")
    output.print_done("the invitation is withdrawn", {"id": invitation}, as_json=as_json)


@click.command(epilog=example("bai vfolder leave data"))
@click.argument("name")
@json_option
@connected
async def leave(connection: Connection, name: str, *, as_json: bool) -> None:
    """Give up a folder that somebody shared with you."""
    me = await connection.client.get("/me")
    path = f"/vfolders/{segment(name)}/grants/{segment(me['username'])}"
    await connection.client.delete(path)
    output.print_done(
        f"folder {name} is no longer yours to use", {"vfolder": name}, as_json=as_json
    )


@click.command(epilog=example("bai vfolder hosts"))
@json_option
@connected
async def hosts(connection: Connection, *, as_json: bool) -> None:
    """List the storage hosts, what they can do and how they are."""
    page = await connection.client.get("/storage-hosts")
    if not as_json:
        for item in page["items"]:
            item["free_bytes"] = transfer.size(item["free_bytes"])
    output.print_page(page, HOST_COLUMNS, as_json=as_json)


@click.command(
    epilog=example(
        "bai vfolder quota",
        "bai vfolder quota user:6f1c2d3e-0000-4000-8000-000000000000 --limit 50g",
    )
)
@click.argument("scope", required=False)
@click.option("--host", metavar="NAME", help="Storage host; default: the first one.")
@click.option(
    "--limit", metavar="AMOUNT", help="Set it: 50g, none, or policy for what the policy says."
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
    """Show what is used of which quotas; with SCOPE (user:ID, project:ID) and --limit set one."""
    if limit is None:
        query: dict[str, Any] = {"scope": scope} if scope else {}
        page = await connection.client.get("/quota-scopes", **query)
        if not as_json:
            for item in page["items"]:
                for shown in ("used", "limit"):
                    amount = item[f"{shown}_bytes"]
                    item[shown] = None if amount is None else transfer.size(amount)
        output.print_page(page, QUOTA_COLUMNS, as_json=as_json)
        return
    if scope is None or not _SCOPE.fullmatch(scope):
        raise InvalidRequest("say whose limit: user:ID or project:ID", field="scope")
    known = (await connection.client.get("/storage-hosts"))["items"]
    place = host or next(item["name"] for item in known if item["is_default"])
    special: dict[str, int | None] = {"none": -1, "policy": None}
    asked = special[limit] if limit in special else parse_amount(MEM, limit)
    done = await connection.client.put(
        f"/quota-scopes/{segment(place)}/{segment(scope)}", {"limit_bytes": asked}
    )
    output.print_done(f"the limit of {scope} on {place} is set", done, as_json=as_json)


COMMANDS = (
    mkdir, mv, cp, usage, clone, change_owner, invite, invitations, accept, decline, withdraw,
    leave, hosts, quota,
)  # fmt: skip
