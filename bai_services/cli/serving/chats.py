"""`bai chat`: the user's chats with endpoints, which the web UI stores."""

from __future__ import annotations

from typing import Any

import click

from .. import output
from ..command import (
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
    segment,
)

COLUMNS = ("title", "updated_at", "messages", "id")


@command_group()
def chat() -> None:
    """List, read and delete your chats with endpoints; no other user can read them."""


@chat.command("ls", epilog=example("bai chat ls", "bai chat ls --sort title"))
@page_options
@json_option
@connected
async def list_(connection: Connection, *, as_json: bool, **options: Any) -> None:
    """List your chats, the last changed first."""
    page = await connection.client.get("/chats", **page_query(**options))
    output.print_page(page, COLUMNS, as_json=as_json, empty="no chats")


@chat.command(epilog=example("bai chat show 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("id")
@json_option
@connected
async def show(connection: Connection, id: str, *, as_json: bool) -> None:
    """Print the messages of a chat."""
    found = await connection.client.get(_path(id))
    if as_json:
        output.print_json(found)
        return
    for card in found["cards"]:
        output.print_log(f"# {card['endpoint']} {card['model']}\n\n")
        for message in card["messages"]:
            output.print_log(f"[{message['role']}]\n{message['text'].rstrip()}\n\n")


@chat.command(epilog=example("bai chat rename 6f1c2d3e-0000-4000-8000-000000000000 Ideas"))
@click.argument("id")
@click.argument("title")
@json_option
@connected
async def rename(connection: Connection, id: str, title: str, *, as_json: bool) -> None:
    """Change the title of a chat."""
    changed = await connection.client.patch(_path(id), {"title": title})
    output.print_done(f"chat renamed to {changed['title']}", changed, as_json=as_json)


@chat.command("rm", epilog=example("bai chat rm 6f1c2d3e-0000-4000-8000-000000000000"))
@click.argument("id")
@json_option
@connected
async def remove(connection: Connection, id: str, *, as_json: bool) -> None:
    """Delete a chat."""
    await connection.client.delete(_path(id))
    output.print_done("chat deleted", {"id": id}, as_json=as_json)


def _path(key: str) -> str:
    return f"/chats/{segment(key)}"
