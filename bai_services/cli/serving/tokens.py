"""`bai service token`: create, list and revoke the tokens of endpoints."""

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
from .options import endpoint_path, given_fields

_TOKEN_COLUMNS = ("name", "expires_at", "networks", "requests", "output_tokens", "last_used_at")


@command_group()
def token() -> None:
    """Tokens for calling an endpoint."""


@token.command("create", epilog=example("bai service token create hello app --per-minute 60"))
@click.argument("name")
@click.argument("token_name", metavar="TOKEN")
@click.option("--network", "networks", multiple=True, metavar="CIDR", help="Permitted addresses.")
@click.option("--expires-at", metavar="TIME", help="Such as 2027-01-31T00:00Z. Default: never.")
@click.option(
    "--per-minute",
    "requests_per_minute",
    type=click.IntRange(1, 1_000_000),
    help="Requests per minute.",
)
@click.option("--max-concurrent", type=click.IntRange(1, 1_000_000), help="Concurrent requests.")
@json_option
@connected
async def create_token(
    connection: Connection, name: str, token_name: str, *, as_json: bool, **options: Any
) -> None:
    """Create a token, and show it; it is shown only once."""
    body = {"name": token_name, **given_fields(options)}
    if "networks" in body:
        body["networks"] = list(body["networks"])
    made = await connection.client.post(f"{endpoint_path(name)}/tokens", body)
    output.print_done(
        f"token {token_name} of endpoint {name}; it is not shown again: {made['token']}",
        made,
        as_json=as_json,
    )


@token.command("list", epilog=example("bai service token list hello"))
@click.argument("name")
@page_options
@json_option
@connected
async def list_tokens(
    connection: Connection,
    name: str,
    *,
    limit: int,
    offset: int,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the tokens of an endpoint with their usage."""
    path = f"{endpoint_path(name)}/tokens"
    page = await connection.client.get(path, **page_query(sort, limit, offset))
    output.print_page(page, _TOKEN_COLUMNS, as_json=as_json, empty="no tokens yet")


@token.command(epilog=example("bai service token revoke hello app"))
@click.argument("name")
@click.argument("token_name", metavar="TOKEN")
@json_option
@connected
async def revoke(connection: Connection, name: str, token_name: str, *, as_json: bool) -> None:
    """Revoke a token; gateways refuse it within 5 seconds."""
    await connection.client.delete(f"{endpoint_path(name)}/tokens/{segment(token_name)}")
    output.print_done(f"token {token_name} revoked", {"name": token_name}, as_json=as_json)
