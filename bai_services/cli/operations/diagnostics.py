"""`bai admin diagnostics`: write diagnostic data to a zip file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import click

from bai_services.core.errors import BaiError

from .. import output
from ..command import Connection, connected, example, json_option
from ..text import json_text

# Files of the bundle with their paths and queries in the REST API. None of the responses contains a
# secret, or the contents of a folder or session.
PARTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("system", "/system", {}),
    ("health", "/health", {}),
    ("counter-audit", "/counter-audit", {}),
    ("audit-verification", "/audit-log/verification", {}),
    ("agents", "/agents", {"limit": 500}),
    ("devices", "/devices", {"limit": 500}),
    ("resource-groups", "/resource-groups", {"limit": 500}),
    ("maintenances", "/maintenances", {"limit": 500}),
    ("storage-hosts", "/storage-hosts", {"limit": 500}),
)


@click.command(epilog=example("bai admin diagnostics diagnostics.zip"))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
@connected
async def diagnostics(connection: Connection, file: Path, *, as_json: bool) -> None:
    """Write versions, health, agents, groups and consistency checks to a zip file.

    The file contains no secrets, no files and no data of sessions. A part that cannot be read is
    replaced by its error. If no part can be read, no file is written.
    """
    failed = []
    contents: dict[str, Any] = {}
    for name, path, query in PARTS:
        try:
            contents[name] = await connection.client.get(path, **query)
        except BaiError as error:
            failed.append(name)
            if len(failed) == len(PARTS):
                raise
            contents[name] = {"error": error.code, "message": error.message}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in contents.items():
            bundle.writestr(f"{name}.json", json_text(content, indent=2))
    text = f"wrote {len(PARTS)} parts to {file}"
    if failed:
        text += f"; could not read: {', '.join(failed)}"
    result = {"file": str(file), "parts": [name for name, *_ in PARTS], "failed": failed}
    output.print_done(text, result, as_json=as_json)
