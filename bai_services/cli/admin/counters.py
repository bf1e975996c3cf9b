"""`bai admin audit-counters`."""

from __future__ import annotations

import sys

import click

from .. import output
from ..command import Connection, connected, example, json_option


@click.command("audit-counters", epilog=example("bai admin audit-counters"))
@json_option
@connected
async def audit_counters(connection: Connection, *, as_json: bool) -> None:
    """Compare all usage counters with the allocations; exit with 1 if they differ."""
    audit = await connection.client.get("/counter-audit")
    differences = audit["differences"]
    text = "\n".join(differences) or "all counters match the allocations"
    output.print_done(text, audit, as_json=as_json)
    if differences:
        sys.exit(1)
