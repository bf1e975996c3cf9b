"""`bai whoami`: the signed-in account, its limits and usage; `bai full-name` changes its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.text import Text

from bai_services.core.resources import CPU, MEM

from .. import output, units
from ..command import Connection, connected, example, json_option, segment, verbose_option
from ..screen import Screen
from ..text import printable

SESSIONS = "sessions"
_LABELS = {SESSIONS: "Sessions", CPU: "CPU", MEM: "Memory"}


@click.command(epilog=example("bai whoami", "bai whoami --json"))
@verbose_option
@json_option
@connected
async def whoami(connection: Connection, *, verbose: bool, as_json: bool) -> None:
    """Show your account, limits and usage."""
    me = {"url": connection.profile.url, **await connection.client.get("/me")}
    if as_json:
        output.print_json(me)
        return
    if verbose:
        projects = [project["name"] for project in me["projects"]]
        output.print_fields({**me, "projects": projects}, as_json=False)
        return
    account_screen(me).print(output.console())


@click.command("full-name", epilog=example("bai full-name 'Ann Kim'"))
@click.argument("name")
@json_option
@connected
async def full_name(connection: Connection, name: str, *, as_json: bool) -> None:
    """Change your full name to NAME, at most 64 characters; '' deletes it."""
    me = await connection.client.get("/me")
    user = await connection.client.patch(f"/users/{segment(me['id'])}", {"full_name": name})
    stored = user["full_name"]
    text = f"your full name is now {printable(stored)}" if stored else "your full name is deleted"
    output.print_done(text, {"full_name": stored}, as_json=as_json)


def account_screen(me: Mapping[str, Any]) -> Screen:
    """Return the screen of an account; ``me`` is the response of ``/me``."""
    title = Text(printable(me["username"]), style="bold")
    name = f"  {me['full_name']}" if me["full_name"] else ""
    title.append(printable(name), style="not bold")
    title.append(printable(f"   {me['role']} · domain {me['domain']}"), style="not bold dim")
    screen = Screen(title)
    screen.add("Hub", me["url"])
    screen.add("E-mail", me["email"])
    screen.add("Projects", ", ".join(one["name"] for one in me["projects"]) or "none")
    screen.add("Keypairs", ", ".join(me["keypairs"]))
    if me["need_password_change"]:
        screen.add("Note", "you must change your password first: bai password")
    limits, usage = me["limits"], me["usage"]
    others = sorted((limits.keys() | usage.keys()) - _LABELS.keys())
    values = [(_LABELS.get(slot, slot), _usage(slot, me)) for slot in (*_LABELS, *others)]
    for number in range(0, len(values), 2):
        screen.pair(*values[number : number + 2])
    return screen


def _usage(slot: str, me: Mapping[str, Any]) -> str:
    """Format the usage and the limit of a slot: ``1 of 30`` or ``1 in use, no limit``."""
    used, limit = me["usage"].get(slot), me["limits"].get(slot)
    if slot == MEM:
        used, limit = (None if text is None else units.memory(text) for text in (used, limit))
    return f"{used or 'none'} in use, no limit" if limit is None else f"{used or 0} of {limit}"
