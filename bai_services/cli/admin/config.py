"""`bai admin config`: settings of the manager, the Hub and agents."""

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

COLUMNS = ("name", "value", "default", "origin", "stored", "needs_restart")
REPORTED_COLUMNS = ("component", "name", "value", "default", "origin")


@command_group()
def config() -> None:
    """List the settings of the manager, the Hub and agents; set some in the database."""


@config.command(
    "list", epilog=example("bai admin config list", "bai admin config list --changeable")
)
@click.option("--changeable", is_flag=True, help="Only settings that can be set in the database.")
@page_options
@json_option
@connected
async def list_(
    connection: Connection,
    *,
    changeable: bool,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the settings with their value, default and origin.

    Values of secrets are not shown.
    """
    query: dict[str, Any] = page_query(sort, limit, offset)
    if changeable:
        query["is_changeable"] = "true"
    page = await connection.client.get("/configuration", **query)
    output.print_page(page, COLUMNS, as_json=as_json, empty="no settings")


@config.command("set", epilog=example("bai admin config set BAI_TRASH_DAYS 14"))
@click.argument("name")
@click.argument("value")
@json_option
@connected
async def set_(connection: Connection, name: str, value: str, *, as_json: bool) -> None:
    """Set the setting NAME to VALUE in the database. It overrides the environment variable.

    The change takes effect after a restart of the manager.
    """
    state = await connection.client.put(f"/configuration/{segment(name)}", {"value": value})
    text = f"{name} is set to {state['stored']}"
    if state["needs_restart"]:
        text += f"; it is {state['value']} until the manager is restarted"
    output.print_done(text, state, as_json=as_json)


@config.command(epilog=example("bai admin config unset BAI_TRASH_DAYS"))
@click.argument("name")
@json_option
@connected
async def unset(connection: Connection, name: str, *, as_json: bool) -> None:
    """Remove the setting NAME from the database: the environment or the default applies again.

    The change takes effect after a restart of the manager.
    """
    await connection.client.delete(f"/configuration/{segment(name)}")
    output.print_done(f"{name} is not set in the database", {"name": name}, as_json=as_json)


@config.command(
    epilog=example(
        "bai admin config reported", "bai admin config reported --component hub --configured"
    )
)
@click.option("--component", metavar="NAME", help="Only of this agent, or `hub`.")
@click.option("--configured", is_flag=True, help="Only settings that differ from the default.")
@page_options
@json_option
@connected
async def reported(
    connection: Connection,
    *,
    component: str | None,
    configured: bool,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List the settings in force in the Hub and in agents, as they report them at their start.

    They can only be changed in the configuration of the Hub or agent. Values of secrets are not
    shown.
    """
    query: dict[str, Any] = page_query(sort, limit, offset)
    if component is not None:
        query["component"] = component
    if configured:
        query["origin__ne"] = "default"
    page = await connection.client.get("/component-settings", **query)
    output.print_page(page, REPORTED_COLUMNS, as_json=as_json, empty="no reported settings")
