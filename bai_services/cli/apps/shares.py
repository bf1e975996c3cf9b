"""`bai session share`, `shares` and `unshare`: let other users open an app of a session."""

from __future__ import annotations

from typing import Any

import click

from bai_services.core.apps.shares import Audience
from bai_services.core.durations import parse_duration

from .. import output
from ..command import Connection, connected, example, json_option, segment

COLUMNS = ("id", "session", "owner", "app", "audience", "user", "project", "expires_at", "url")


def parse_lifetime(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> int | None:
    return None if text is None else parse_duration(text, "--for")


@click.command(
    epilog=example(
        "bai session share my-lab tensorboard --user ann --for 2d",
        "bai session share my-lab port-8501 --public --allow 192.0.2.0/24",
    )
)
@click.argument("name")
@click.argument("app")
@click.option("--user", metavar="NAME", help="Share with this user (name or e-mail address).")
@click.option(
    "--project", metavar="NAME", help="Share with all members of NAME, the session's project."
)
@click.option("--public", is_flag=True, help="Share with anyone, without a sign-in. Needs --allow.")
@click.option(
    "--allow", "allowed_addresses", metavar="NETWORK", multiple=True,
    help="Restrict access to this address or network: 192.0.2.7 or 192.0.2.0/24. May be repeated.",
)  # fmt: skip
@click.option(
    "--for", "expires_in", metavar="SPAN", callback=parse_lifetime,
    help="Lifetime of the share, for example 2h or 3d. Default: 7 days, or less if the user "
    "policy sets a lower maximum.",
)  # fmt: skip
@json_option
@connected
async def share(
    connection: Connection,
    name: str,
    app: str,
    *,
    user: str | None,
    project: str | None,
    public: bool,
    as_json: bool,
    **limits: Any,
) -> None:
    """Share one app of a session and print the link to it.

    APP is a name such as tensorboard, or port-8501. Your user policy limits the audience of shares.
    """
    audience = {Audience.USER: user, Audience.PROJECT: project, Audience.PUBLIC: public}
    if sum(map(bool, audience.values())) != 1:
        raise click.UsageError("pass exactly one of --user NAME, --project NAME and --public")
    spec = {"app": app, **{key.value: value for key, value in audience.items()}, **limits}
    body = {field: value for field, value in spec.items() if value not in (None, False, ())}
    created = await connection.client.post(f"/sessions/{segment(name)}/app-shares", body)
    created["url"] = connection.address(created["url"])
    output.print_done(created["url"], created, as_json=as_json)


@click.command(epilog=example("bai session shares my-lab"))
@click.argument("name", required=False)
@json_option
@connected
async def shares(connection: Connection, name: str | None, *, as_json: bool) -> None:
    """List the shares of a session; without NAME, all shares that you created or received."""
    path = "/app-shares" if name is None else f"/sessions/{segment(name)}/app-shares"
    items = [item async for item in connection.client.items(path)]
    for item in items:
        item["url"] = connection.address(item["url"])
    page = {"items": items, "total": len(items), "offset": 0, "limit": len(items)}
    empty = "no shares; share an app: bai session share NAME APP --user NAME"
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty)


@click.command(epilog=example("bai session unshare my-lab 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("name")
@click.argument("ids", metavar="SHARE…", nargs=-1, required=True)
@json_option
@connected
async def unshare(
    connection: Connection, name: str, ids: tuple[str, ...], *, as_json: bool
) -> None:
    """Revoke shares of a session, by the ids that `bai session shares` lists."""
    for key in ids:
        await connection.client.delete(f"/sessions/{segment(name)}/app-shares/{segment(key)}")
    text = f"revoked {len(ids)} {'share' if len(ids) == 1 else 'shares'} of session {name}"
    output.print_done(text, {"items": list(ids)}, as_json=as_json)
