"""`bai session logs --search TEXT`: search the logs of the user's ended sessions."""

from __future__ import annotations

from typing import Any

from bai_services.client import Client

from .. import output
from ..text import printable
from ..units import local, parse_time

# Maximum number of kernels whose matching lines are printed.
MAX_HITS = 200


async def search_logs(client: Client, text: str, *, as_json: bool) -> None:
    """Print the sessions whose logs contain a text, the newest first, with the first matches."""
    found: dict[str, Any] = {"items": [], "searched": 0, "after": ""}
    while found["after"] is not None and len(found["items"]) < MAX_HITS:
        part = await client.get("/session-logs", search=text, after=found["after"])
        found = {
            "items": [*found["items"], *part["items"]],
            "searched": found["searched"] + part["searched"],
            "after": part["after"],
        }
    if as_json:
        output.print_json(found)
        return
    for item in found["items"]:
        ended = parse_time(item["terminated_at"])
        when = "" if ended is None else f", ended {local(ended)}"
        print(printable(f"{item['session']} ({item['kernel']}{when}, id {item['session_id']})"))
        for line in item["matches"]:
            print(f"  {line['number']}: {printable(line['text'])}")
        if item["match_count"] > len(item["matches"]):
            print(f"  … {item['match_count']} matching lines in total")
    if not found["items"]:
        output.note(
            f"no log of your ended sessions contains the text ({found['searched']} searched)"
        )
    elif found["after"] is not None:
        output.note(f"only the first {len(found['items'])} logs are shown; there may be more")
