"""`bai notification`: your notifications, and the settings of their delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from bai_services.core.notifications.catalogue import EventName

from .. import output
from ..command import Choice, Connection, command_group, connected, example, json_option, segment
from .webhooks import webhook

COLUMNS = ("created_at", "event", "text", "id")

EVENTS = tuple(each.value for each in EventName)


@command_group()
def notification() -> None:
    """Read your notifications, and choose how you receive them."""


@notification.command("ls", epilog=example("bai notification ls", "bai notification ls --unread"))
@click.option("--unread", is_flag=True, help="Only unread notifications.")
@click.option(
    "--event", type=Choice(EVENTS), metavar="EVENT", help="Only notifications of this event."
)
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number."
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Skip this number.")
@json_option
@connected
async def list_(
    connection: Connection,
    *,
    unread: bool,
    event: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List your notifications of the last 30 days, the newest first."""
    query: dict[str, Any] = {"limit": limit, "offset": offset}
    if unread:
        query["is_read"] = "false"
    if event is not None:
        query["event"] = event
    page = await connection.client.get("/notifications", **query)
    output.print_page(page, COLUMNS, as_json=as_json, empty="no notifications")


@notification.command(
    epilog=example(
        "bai notification read --all",
        "bai notification read 6f1c2d3e-0000-4000-8000-000000000000",
    )
)
@click.argument("ids", metavar="ID", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Mark all notifications.")
@json_option
@connected
async def read(connection: Connection, ids: Sequence[str], *, is_all: bool, as_json: bool) -> None:
    """Mark notifications as read."""
    if is_all == bool(ids):
        raise click.UsageError("give the ids of notifications, or --all")
    if is_all:
        await connection.client.call("PUT", "/notifications/read")
    for key in ids:
        await connection.client.call("PUT", f"/notifications/{segment(key)}/read")
    output.print_done("marked as read", {"ids": list(ids)}, as_json=as_json)


@notification.command(epilog=example("bai notification events"))
@json_option
@connected
async def events(connection: Connection, *, as_json: bool) -> None:
    """List the events about which you can be notified, with your channels."""
    page = await connection.client.get("/notification-events", limit=200)
    output.print_page(page, ("name", "channels", "is_urgent"), as_json=as_json)


@notification.command(epilog=example("bai notification settings"))
@json_option
@connected
async def settings(connection: Connection, *, as_json: bool) -> None:
    """Show the language, time zone, quiet hours and digest of your notifications."""
    output.print_fields(await connection.client.get("/notification-settings"), as_json=as_json)


@notification.command(
    "set",
    epilog=example(
        "bai notification set --time-zone Asia/Seoul --quiet 22:00-07:00 --digest daily",
        "bai notification set --channels session-failed=web,mail --channels announcement=",
        "bai notification set --quiet none",
    ),
)
@click.option("--language", type=click.Choice(["en", "ko", "ja", "th"]), help="Language of mails.")
@click.option("--time-zone", metavar="ZONE", help="Time zone, such as Asia/Seoul.")
@click.option("--quiet", metavar="FROM-TO", help="Quiet hours, such as 22:00-07:00, or none.")
@click.option("--digest", type=click.Choice(["none", "hourly", "daily"]), help="Digest of mails.")
@click.option("--digest-time", metavar="HH:MM", help="Time of the daily digest.")
@click.option(
    "--channels",
    metavar="EVENT=CHANNELS",
    multiple=True,
    help="Channels of an event: some of web, mail, webhook, slack. Can be repeated.",
)
@json_option
@connected
async def set_(
    connection: Connection,
    *,
    quiet: str | None,
    channels: Sequence[str],
    as_json: bool,
    **fields: str | None,
) -> None:
    """Change the settings of your notifications; urgent events ignore quiet hours and digests."""
    body: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if quiet is not None:
        starts, dash, ends = ("", "-", "") if quiet == "none" else quiet.partition("-")
        if not dash:
            raise click.UsageError("write quiet hours as 22:00-07:00, or none")
        body |= {"quiet_starts": starts, "quiet_ends": ends}
    if channels:
        body["channels"] = dict(map(_channels, channels))
    if not body:
        raise click.UsageError("give at least one option")
    changed = await connection.client.patch("/notification-settings", body)
    output.print_fields(changed, as_json=as_json)


def _channels(text: str) -> tuple[str, list[str]]:
    event, equals, names = text.partition("=")
    if not equals:
        raise click.UsageError(f"write channels as EVENT=web,mail, not {text!r}")
    return event, [name for name in names.split(",") if name]


notification.add_command(webhook)
