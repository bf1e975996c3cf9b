"""`bai budget`: the budgets of the user's projects."""

from __future__ import annotations

import click

from .. import output, units
from ..command import (
    Connection,
    connected,
    example,
    json_option,
    ls_argument,
    page_options,
    page_query,
)

_COLUMNS = ("project", "amount", "spent", "left", "period_end", "mode", "blocked_at")
# Fields with amounts in the currency of the prices.
MONEY = ("amount", "spent", "left")


@click.command(epilog=example("bai budget"))
@ls_argument
@page_options
@json_option
@connected
async def budget(
    connection: Connection, *, limit: int, offset: int, sort: str | None, as_json: bool
) -> None:
    """Show the budgets of your projects in the current period, and how much remains."""
    page = await connection.client.get("/budgets", **page_query(sort, limit, offset))
    if not as_json:
        page["items"] = [units.with_currency(item, MONEY) for item in page["items"]]
    output.print_page(page, _COLUMNS, as_json=as_json, empty="none of your projects has a budget")
