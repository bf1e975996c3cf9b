"""Notice of new announcements after a command on a terminal."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from bai_services.client import Client
from bai_services.core.errors import BaiError

from . import output, profile

FILE = "announcements.json"
# Minimum time between two queries, because a query after each command would slow the commands down.
QUERY_INTERVAL_SECONDS = 600.0
# Maximum number of remembered announcements; the oldest are dropped.
MAX_SHOWN = 200


async def show(current: profile.Profile, client: Client, *, is_json: bool) -> None:
    """Print to standard error the titles of announcements that were not shown before.

    Nothing is printed with ``is_json``, or if standard output or standard error is not a terminal.
    The shown announcements are stored for one Hub: a command for another Hub discards them.
    Failures are ignored, because the command itself has succeeded.
    """
    if is_json or not (sys.stdout.isatty() and sys.stderr.isatty()):
        return
    file = profile.folder() / FILE
    state = _read(file, current.url)
    if 0 <= time.time() - state["queried_at"] < QUERY_INTERVAL_SECONDS:
        return
    with contextlib.suppress(BaiError, OSError):
        page = await client.get("/announcements/current", is_dismissed="false", limit=200)
        new = [item for item in page["items"] if item["id"] not in state["shown"]]
        shown = [*state["shown"], *(item["id"] for item in new)][-MAX_SHOWN:]
        # Store the ids first: if this fails, print nothing, because the notice would be repeated
        # after each command.
        _write(file, {"url": current.url, "queried_at": time.time(), "shown": shown})
        for item in new:
            output.note(f"announcement: {item['title']}; see: bai announcements")


def _read(file: Path, url: str) -> dict[str, Any]:
    state: dict[str, Any] = {"queried_at": 0.0, "shown": []}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["url"] == url and isinstance(content["shown"], list):
            state = {"queried_at": float(content["queried_at"]), "shown": content["shown"]}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return state


def _write(file: Path, state: dict[str, Any]) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(state), encoding="utf-8")
    part.replace(file)
