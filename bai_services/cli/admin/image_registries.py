"""Further commands of `bai admin registry`: credentials and scans."""

from __future__ import annotations

import asyncio
from typing import Any, TextIO

import click

from .. import output
from ..command import Connection, connected, example, json_option, segment

POLL_SECONDS = 2.0
_OPEN = ("queued", "running")


@click.command(
    "credentials",
    epilog=example("bai admin registry credentials lab --username robot --password-file -"),
)
@click.argument("name")
@click.option("--username", help="User name.")
@click.option(
    "--password-file",
    type=click.File(),
    help="File with the password; - reads standard input. An empty file removes the password.",
)
@click.option(
    "--ca-file",
    type=click.File(),
    help="File with the CA certificate (PEM). An empty file removes the certificate.",
)
@json_option
@connected
async def credentials(
    connection: Connection,
    name: str,
    *,
    username: str | None,
    password_file: TextIO | None,
    ca_file: TextIO | None,
    as_json: bool,
) -> None:
    """Change the user name, the password or the CA certificate of a registry."""
    body: dict[str, Any] = {}
    if username is not None:
        body["username"] = username
    if password_file is not None:
        body["password"] = password_file.read().rstrip("\r\n")
    if ca_file is not None:
        body["ca_certificate"] = ca_file.read()
    if not body:
        raise click.UsageError("give --username, --password-file or --ca-file")
    changed = await connection.client.patch(f"/image-registries/{segment(name)}", body)
    output.print_done(f"changed the credentials of {name}", changed, as_json=as_json)


@click.command(epilog=example("bai admin registry scan lab --wait"))
@click.argument("name")
@click.option("--wait", is_flag=True, help="Wait for the end of the scan.")
@json_option
@connected
async def scan(connection: Connection, name: str, *, wait: bool, as_json: bool) -> None:
    """Scan a registry: register new images and detect changed tags."""
    path = f"/image-registries/{segment(name)}"
    found = await connection.client.post(f"{path}/scan")
    while wait and found["scan_status"] in _OPEN:
        await asyncio.sleep(POLL_SECONDS)
        found = await connection.client.get(path)
    if found["scan_status"] in _OPEN:
        text = f"the scan is queued; for the progress, run: bai admin registry info {name}"
    else:
        text = _result(found)
    output.print_done(text, found, as_json=as_json)
    if found["scan_status"] == "failed":
        raise SystemExit(1)


@click.command("cancel-scan", epilog=example("bai admin registry cancel-scan lab"))
@click.argument("name")
@json_option
@connected
async def cancel_scan(connection: Connection, name: str, *, as_json: bool) -> None:
    """Cancel the scan of a registry."""
    found = await connection.client.delete(f"/image-registries/{segment(name)}/scan")
    output.print_done(f"cancelled the scan of {name}", found, as_json=as_json)


def _result(registry: dict[str, Any]) -> str:
    counts = ", ".join(
        f"{registry[f'scan_{field}']} {field}"
        for field in ("tags", "new", "changed", "skipped", "removed")
    )
    problem = f"; {registry['scan_problem']}" if registry["scan_problem"] else ""
    return f"{registry['scan_status']}: {counts}{problem}"


REGISTRY_COMMANDS = (credentials, scan, cancel_scan)
