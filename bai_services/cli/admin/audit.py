"""`bai admin audit`: list, export and verify the audit log."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import AsyncIterator
from typing import IO, Any

import click

from bai_services.client import Client
from bai_services.core.listing import MAX_LIMIT

from .. import output
from ..accounts.audit import similar_actions
from ..command import (
    Choice,
    Connection,
    command_group,
    connected,
    example,
    json_option,
    page_options,
    page_query,
)

COLUMNS = ("at", "actor", "action", "entity_name", "outcome", "client_ip", "id", "details")
_FIELDS = (
    "id", "at", "actor", "actor_id", "on_behalf_of", "client_ip", "action", "entity", "entity_id",
    "entity_name", "owner_id", "domain", "outcome", "details", "position", "hash",
)  # fmt: skip
# Spreadsheets treat cells that begin with one of these characters as formulas.
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


@command_group()
def audit() -> None:
    """List, export and verify the audit log."""


def _filters(command: Any) -> Any:
    for option, name, text in reversed(
        (
            ("--actor", "actor", "Only actions of this user."),
            ("--action", "action", "Only this action, for example session.stop."),
            ("--entity", "entity", "Only objects of this kind, for example session."),
            ("--name", "entity_name", "Only the object of this name."),
            ("--from-address", "client_ip", "Only requests from this address."),
            ("--domain", "domain", "Only this domain."),
            ("--outcome", "outcome", "Only this outcome, for example forbidden."),
            ("--since", "at__gte", "Only entries from this time on (ISO 8601)."),
            ("--until", "at__lt", "Only entries before this time (ISO 8601)."),
        )
    ):
        command = click.option(option, name, metavar="VALUE", help=text)(command)
    return command


@audit.command(
    "list",
    epilog=example(
        "bai admin audit list --actor ann --since 2026-11-01",
        "bai admin audit list --action session.stop --outcome forbidden",
    ),
)
@_filters
@page_options
@json_option
@connected
async def list_(
    connection: Connection,
    *,
    sort: str | None,
    limit: int,
    offset: int,
    as_json: bool,
    **filters: Any,
) -> None:
    """List the entries of the audit log, newest first."""
    query = page_query(sort, limit, offset) | _given(filters)
    page = await connection.client.get("/audit-log", **query)
    empty = "no entry matches"
    if not (as_json or page["total"]):
        empty += await similar_actions(connection.client, "/audit-log", filters["action"])
    output.print_page(page, COLUMNS, as_json=as_json, empty=empty, has_exact_times=True)


@audit.command(
    epilog=example(
        "bai admin audit export audit.jsonl",
        "bai admin audit export --format csv --since 2026-11-01 november.csv",
    )
)
@click.argument("file", type=click.File("w", encoding="utf-8", lazy=True), default="-")
@click.option(
    "--format", "form", type=Choice(["jsonl", "csv"]), default="jsonl", show_default=True,
    help="JSON lines or CSV.",
)  # fmt: skip
@click.option(
    "--max-entries",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Stop after this number of entries.",
)
@_filters
@connected
async def export(
    connection: Connection, *, file: IO[str], form: str, max_entries: int, **filters: Any
) -> None:
    """Write the entries to FILE, oldest first. Default: standard output (-)."""
    count = 0
    writer = csv.DictWriter(file, _FIELDS, extrasaction="ignore") if form == "csv" else None
    if writer is not None:
        writer.writeheader()
    async for entry in _entries(connection.client, _given(filters), max_entries):
        if writer is None:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        else:
            writer.writerow({name: _cell(entry[name]) for name in _FIELDS})
        count += 1
    output.note("1 entry" if count == 1 else f"{count} entries")
    if count == max_entries:
        output.note("there may be more entries; export them with --since or --max-entries")


@audit.command(
    epilog=example("bai admin audit verify", "bai admin audit verify --known 1200:3f5a0c")
)
@click.option(
    "--known",
    metavar="POSITION:HASH",
    help="Also require that the entry at POSITION still has this HASH, from an earlier output.",
)
@json_option
@connected
async def verify(connection: Connection, *, known: str | None, as_json: bool) -> None:
    """Verify the hash chain; exit with 1 if an entry was altered, removed or inserted.

    The first damaged entry is reported. An attacker who can write to the database could recompute
    the whole chain. To detect that, keep the printed position and hash in another place, and pass
    them to `--known` later.
    """
    result = await _verified(connection.client)
    problem = result["problem"]
    is_known_expired = False
    if problem is None and known is not None:
        position, digest = _position_and_hash(known)
        is_known_expired = position < result["anchor_position"]
        if not is_known_expired:
            problem = await _known_problem(connection.client, result, position, digest)
            result["problem"] = problem
    result["is_known_expired"] = is_known_expired
    text = (
        f"{result['checked']} entries are unchanged; the last is at position "
        f"{result['position']} with the hash {result['hash']}"
    )
    if problem is not None:
        text = f"the audit log is damaged: {problem['message']}"
    elif result["unchained"]:
        text += f"; {result['unchained']} new entries are not in the chain yet"
    if is_known_expired:
        output.note(
            f"the entry {known} was removed because of its age, so its hash was not compared; "
            "note the new position and hash"
        )
    output.print_done(text, result, as_json=as_json)
    if problem is not None:
        sys.exit(1)


async def _verified(client: Client) -> dict[str, Any]:
    """Verify the whole chain in several requests; return the last result with the total count."""
    checked, after = 0, 0
    while True:
        result: dict[str, Any] = await client.get("/audit-log/verification", after=after)
        checked += result["checked"]
        if result["is_complete"] or result["problem"] is not None:
            return {**result, "checked": checked}
        after = result["position"]


def _position_and_hash(known: str) -> tuple[int, str]:
    position, _, digest = known.partition(":")
    # Positions have at most 19 digits.
    if not (position.isascii() and position.isdecimal() and len(position) < 20 and digest):
        raise click.UsageError(f"--known {known!r} is not POSITION:HASH")
    return int(position), digest


async def _known_problem(
    client: Client, result: dict[str, Any], position: int, digest: str
) -> dict[str, Any] | None:
    """Return a problem unless the entry at ``position`` has the hash ``digest``.

    The last removed entry is the anchor of the chain, so its hash is still known.
    """
    found = []
    if position == result["anchor_position"]:
        its_hash = result["anchor_hash"]
    else:
        found = (await client.get("/audit-log", position=position))["items"]
        its_hash = found[0]["hash"] if found else None
    if its_hash == digest:
        return None
    kind = "removed" if its_hash is None else "altered"
    text = f"the entry at position {position} does not have the hash {digest}"
    entry_id = found[0]["id"] if found else None
    return {"kind": kind, "position": position, "entry_id": entry_id, "message": text}


async def _entries(
    client: Client, filters: dict[str, Any], maximum: int
) -> AsyncIterator[dict[str, Any]]:
    """Yield the matching entries by id; each page begins after the last id of the previous page."""
    last = 0
    while maximum > 0:
        limit = min(MAX_LIMIT, maximum)
        page = await client.get("/audit-log", **filters, sort="id", id__gt=last, limit=limit)
        for entry in page["items"]:
            yield entry
        if len(page["items"]) < limit:
            return
        maximum -= limit
        last = page["items"][-1]["id"]


def _given(filters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in filters.items() if value is not None}


def _cell(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
    if isinstance(text, str) and text.startswith(_FORMULA_SIGNS):
        return f"'{text}"
    return text
