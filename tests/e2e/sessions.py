"""REST helpers for end-to-end tests: start, stop and wait for sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx

from tests.testbed.wait import wait_until

START_SECONDS = 90
ENDED = {"TERMINATED", "CANCELLED", "ERROR"}

JSON = dict[str, Any]


def checked(answer: httpx.Response, *statuses: int) -> Any:
    """Assert that a response has one of the statuses; return its JSON, or None if it is empty."""
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text}"
    return answer.json() if answer.content else None


def start(rest: httpx.Client, name: str, **fields: Any) -> JSON:
    """Create a session, wait until it is RUNNING, and return it."""
    body = {"name": name, "project": "default", "resources": {"cpu": "1", "mem": "1g"}, **fields}
    session = checked(rest.post("/sessions", json=body), 201)
    return wait_for(rest, session["id"], "RUNNING")


def wait_for(rest: httpx.Client, session_id: str, *statuses: str) -> JSON:
    """Wait until a session has one of the statuses, and return it.

    The error after a timeout contains the session. If the session ends with another status, the
    error also contains its log.
    """
    session: JSON = {}

    def session_in_status() -> JSON | None:
        nonlocal session
        session = checked(rest.get(f"/sessions/{session_id}"), 200)
        if session["status"] in statuses:
            return session
        if session["status"] in ENDED:
            log = rest.get(f"/sessions/{session_id}/logs").text
            raise AssertionError(f"ended as {session['status']}: {session}\n{log}")
        return None

    try:
        return wait_until(
            session_in_status, START_SECONDS, f"session {session_id} to be {statuses}"
        )
    except TimeoutError as error:
        raise AssertionError(f"{error}; it is {session}") from None


def stop(rest: httpx.Client, session_id: str) -> JSON:
    checked(rest.delete(f"/sessions/{session_id}"), 202)
    return wait_for(rest, session_id, "TERMINATED", "CANCELLED")


def remove_created_since(rest: httpx.Client, since: datetime) -> None:
    """Stop the sessions and trash the folders that were created at ``since`` or later."""
    # Request the newest items first, because with the trashed folders of earlier tests, there can
    # be more than one page.
    newest = {"sort": "-created_at", "limit": "500"}
    for session in checked(rest.get("/sessions", params=newest), 200)["items"]:
        if session["status"] not in ENDED and _created_at(session) >= since:
            rest.delete(f"/sessions/{session['id']}", params={"force": "true"})
            wait_for(rest, session["id"], *ENDED)
    for folder in checked(rest.get("/vfolders", params=newest), 200)["items"]:
        if folder["status"] == "ready" and _created_at(folder) >= since:
            checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def _created_at(row: JSON) -> datetime:
    return datetime.fromisoformat(row["created_at"])
