"""`bai notification webhook` and `bai admin webhook`: webhooks and their deliveries."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from bai_services.core.errors import Unavailable
from bai_services.core.notifications.catalogue import EventName

from .. import output
from ..command import Choice, Connection, command_group, connected, example, json_option, segment

COLUMNS = ("name", "kind", "host", "domain", "is_own", "is_enabled", "suspended_at", "id")
DELIVERY_COLUMNS = ("created_at", "event", "status", "attempts", "last_error", "id")
_URL_FROM_STDIN = "-"

EVENTS = tuple(each.value for each in EventName)


@command_group()
def webhook() -> None:
    """Manage webhooks: URLs that are called when an event occurs."""


@webhook.command("ls", epilog=example("bai notification webhook ls"))
@json_option
@connected
async def list_(connection: Connection, *, as_json: bool) -> None:
    """List your webhooks, and those that you administer."""
    page = await connection.client.get("/webhooks", limit=500)
    output.print_page(page, COLUMNS, as_json=as_json, empty="no webhooks")


@webhook.command(
    epilog=example(
        "bai notification webhook create https://hooks.example.org/bai",
        "bai admin webhook create - --kind slack --scope all --event agent-lost",
    )
)
@click.argument("url")
@click.option(
    "--kind",
    type=click.Choice(["json", "slack"]),
    default="json",
    show_default=True,
    help="Format: signed JSON, or plain text for Slack and compatible services.",
)
@click.option("--name", metavar="NAME", help="Default: the host of the URL.")
@click.option(
    "--scope",
    type=click.Choice(["own", "domain", "all"]),
    default="own",
    show_default=True,
    help="own: your events. domain, all: the events of a domain or the installation.",
)
@click.option("--domain", metavar="DOMAIN", help="Domain, for --scope domain.")
@click.option(
    "--event",
    "events",
    type=Choice(EVENTS),
    metavar="EVENT",
    multiple=True,
    help="Event; can be repeated.",
)
@click.option(
    "--language", type=click.Choice(["en", "ko", "ja", "th"]), help="Language of the texts."
)
@json_option
@connected
async def create(
    connection: Connection,
    url: str,
    *,
    events: Sequence[str],
    as_json: bool,
    **fields: str | None,
) -> None:
    """Create a webhook. If URL is -, it is read from standard input.

    The secret that signs its deliveries is shown only once.
    """
    body: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    body |= {"url": _url(url), "events": list(events)}
    made = await connection.client.post("/webhooks", body)
    text = f"created webhook {made['id']} with the secret {made['secret']}"
    output.print_done(text, made, as_json=as_json)


@webhook.command(
    epilog=example(
        "bai notification webhook update 6f1c2d3e --disable",
        "bai notification webhook update 6f1c2d3e --url https://hooks.example.org/new",
    )
)
@click.argument("webhook_id", metavar="ID")
@click.option("--url", metavar="URL", help="New URL; - for standard input.")
@click.option("--name", metavar="NAME", help="New name.")
@click.option(
    "--event",
    "events",
    type=Choice(EVENTS),
    metavar="EVENT",
    multiple=True,
    help="Replaces the events.",
)
@click.option(
    "--language", type=click.Choice(["en", "ko", "ja", "th"]), help="Language of the texts."
)
@click.option(
    "--enable/--disable", "is_enabled", default=None, help="Enabling also ends a suspension."
)
@json_option
@connected
async def update(
    connection: Connection,
    webhook_id: str,
    *,
    url: str | None,
    events: Sequence[str],
    as_json: bool,
    **fields: Any,
) -> None:
    """Change a webhook."""
    body: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if url is not None:
        body["url"] = _url(url)
    if events:
        body["events"] = list(events)
    changed = await connection.client.patch(f"/webhooks/{segment(webhook_id)}", body)
    output.print_fields(changed, as_json=as_json)


@webhook.command(epilog=example("bai notification webhook rm 6f1c2d3e"))
@click.argument("webhook_id", metavar="ID")
@json_option
@connected
async def rm(connection: Connection, webhook_id: str, *, as_json: bool) -> None:
    """Delete a webhook with its deliveries."""
    await connection.client.delete(f"/webhooks/{segment(webhook_id)}")
    output.print_done(f"deleted webhook {webhook_id}", {"id": webhook_id}, as_json=as_json)


@webhook.command(epilog=example("bai notification webhook test 6f1c2d3e"))
@click.argument("webhook_id", metavar="ID")
@json_option
@connected
async def test(connection: Connection, webhook_id: str, *, as_json: bool) -> None:
    """Send a test message at once; a success also ends a suspension."""
    result = await connection.client.post(f"/webhooks/{segment(webhook_id)}/test")
    if not result["is_delivered"]:
        raise Unavailable(f"the test message was not delivered: {result['error']}")
    output.print_done("the test message was delivered", result, as_json=as_json)


@webhook.command(epilog=example("bai notification webhook log 6f1c2d3e"))
@click.argument("webhook_id", metavar="ID")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Maximum number."
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Skip this number.")
@json_option
@connected
async def log(
    connection: Connection, webhook_id: str, *, limit: int, offset: int, as_json: bool
) -> None:
    """List the deliveries of the last seven days."""
    path = f"/webhooks/{segment(webhook_id)}/deliveries"
    page = await connection.client.get(path, limit=limit, offset=offset)
    output.print_page(page, DELIVERY_COLUMNS, as_json=as_json, empty="no deliveries")


@webhook.command(epilog=example("bai notification webhook secret 6f1c2d3e"))
@click.argument("webhook_id", metavar="ID")
@json_option
@connected
async def secret(connection: Connection, webhook_id: str, *, as_json: bool) -> None:
    """Replace the secret that signs the deliveries, and show the new one."""
    made = await connection.client.post(f"/webhooks/{segment(webhook_id)}/secret")
    output.print_done(made["secret"], made, as_json=as_json)


def _url(text: str) -> str:
    return sys.stdin.readline().strip() if text == _URL_FROM_STDIN else text
