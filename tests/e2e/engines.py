"""The demo on either engine, and a session as REST sees it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx

from tests.testbed.wait import wait_until

START_SECONDS = 90
ENDED = {"TERMINATED", "CANCELLED", "ERROR"}

JSON = dict[str, Any]


def checked(answer: httpx.Response, *statuses: int) -> Any:
    """Return the JSON of an answer that has one of the statuses expected."""
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text}"
    return answer.json() if answer.content else None


def start(rest: httpx.Client, name: str, **fields: Any) -> JSON:
    """Create a session and wait until it runs."""
    body = {"name": name, "project": "default", "resources": {"cpu": "1", "mem": "1g"}, **fields}
    session = checked(rest.post("/sessions", json=body), 201)
    return wait_for(rest, session["id"], "RUNNING")


def wait_for(rest: httpx.Client, session_id: str, *statuses: str) -> JSON:
    """Wait until a session has one of the statuses; fail with its facts when it has not."""
    session: JSON = {}

    def seen() -> JSON | None:
        nonlocal session
        session = checked(rest.get(f"/sessions/{session_id}"), 200)
        if session["status"] in statuses:
            return session
        if session["status"] in ENDED:
            log = rest.get(f"/sessions/{session_id}/logs").text
            raise AssertionError(f"ended as {session['status']}: {session}\n{log}")
        return None

    try:
        return wait_until(seen, START_SECONDS, f"session {session_id} to be {statuses}")
    except TimeoutError as error:
        raise AssertionError(f"{error}; it is {session}") from None


def stop(rest: httpx.Client, session_id: str) -> JSON:
    checked(rest.delete(f"/sessions/{session_id}"), 202)
    return wait_for(rest, session_id, "TERMINATED", "CANCELLED")


def remove_made_since(rest: httpx.Client, since: datetime) -> None:
    """End every session and put every folder in the trash that was made since, as administrator."""
    for session in checked(rest.get("/sessions"), 200)["items"]:
        if session["status"] not in ENDED and _made(session) >= since:
            rest.delete(f"/sessions/{session['id']}", params={"force": "true"})
            wait_for(rest, session["id"], *ENDED)
    for folder in checked(rest.get("/vfolders"), 200)["items"]:
        if folder["status"] == "ready" and _made(folder) >= since:
            checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def _made(row: JSON) -> datetime:
    return datetime.fromisoformat(row["created_at"])
