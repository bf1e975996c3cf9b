"""`bai announcements`: the announcements of administrators."""

from __future__ import annotations

from typing import Any

import click

from .. import output
from ..command import Connection, connected, example, json_option, segment
from ..text import printable
from ..units import local, parse_time


@click.command(
    "announcements",
    epilog=example(
        "bai announcements", "bai announcements --dismiss 6f1c2d3e-0000-4000-8000-000000000000"
    ),
)
@click.option("--dismiss", metavar="ID", help="Hide this announcement from now on.")
@click.option("--all", "is_all", is_flag=True, help="Include dismissed announcements.")
@json_option
@connected
async def announcements(
    connection: Connection, *, dismiss: str | None, is_all: bool, as_json: bool
) -> None:
    """Show the current announcements of administrators."""
    if dismiss is not None:
        await connection.client.call("PUT", f"/announcements/{segment(dismiss)}/dismissal")
        output.print_done(f"dismissed announcement {dismiss}", {"id": dismiss}, as_json=as_json)
        return
    query: dict[str, Any] = {} if is_all else {"is_dismissed": "false"}
    page = await connection.client.get("/announcements/current", limit=200, **query)
    if as_json:
        output.print_json(page)
        return
    if not page["items"]:
        output.note("no announcements")
    for number, item in enumerate(page["items"]):
        start = parse_time(item["starts_at"])
        when = "" if start is None else local(start)
        print(("\n" if number else "") + printable(f"[{item['level']}] {item['title']}"))
        print(printable(f"{when}  id {item['id']}"))
        for line in str(item["text"]).splitlines():
            print(f"  {printable(line)}")
