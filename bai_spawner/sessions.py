"""Client of the manager's sessions for the spawner."""

from __future__ import annotations

import asyncio
import bisect
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bai_services.client import Token
from bai_services.core import errors
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.lifecycle import ENDED, LIVE, Status
from bai_services.service_client import ServiceClient

from .engines.base import Exit, Running

# A body of the API may have one MiB; the log is truncated so that it fits as JSON.
MAX_LOG_BYTES = 2**20 - 4096
REPORT_TRIES = 4
REPORT_FIRST_WAIT_SECONDS = 0.2
LONG_POLL_SECONDS = 20
# Output of a session's main kernel, and of its other kernels by hostname.
Logs = tuple[str, Mapping[str, str]]
NO_LOGS: Logs = ("", {})
ANSWER_SECONDS = 15

WAITING = frozenset({Status.PENDING, Status.SCHEDULED, Status.PREPARING})


def is_ended(session: Mapping[str, Any]) -> bool:
    return session["status"] in ENDED


def is_overtaken(session: Mapping[str, Any]) -> bool:
    """Return whether a session was stopped before a start that the manager requested.

    Creating it again would start a session that nobody wants any more.
    """
    was_stopped = session["status"] in (Status.CANCELLED, Status.TERMINATED)
    return was_stopped and session["started_by"] == "manager" and not session["started_at"]


def is_waiting(session: Mapping[str, Any]) -> bool:
    return session["status"] in WAITING


class Sessions:
    """Calls the manager with the Hub's secret; every method may raise a ``BaiError``."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    @classmethod
    def connect(cls, manager_url: str, token_file: str, timeout_seconds: float) -> Sessions:
        """Return a client for the manager at ``manager_url``; nothing is sent yet.

        Raises
        ------
        Unavailable
            If the file with the Hub's secret cannot be read.
        """
        try:
            secret = Path(token_file).read_text().strip()
        except OSError as error:
            raise errors.Unavailable(
                "the Hub has no secret for the resource manager; see BAI_HUB_TOKEN_FILE"
            ) from error
        return cls(ServiceClient(manager_url, Token(secret), timeout_seconds))

    async def close(self) -> None:
        await self._client.close()

    async def options(self, owner: str, project: str = "", group: str = "") -> dict[str, Any]:
        """Return the offer of the start form for ``owner``."""
        query = {"owner": owner, "project": project, "resource_group": group}
        return await self._get("/sessions/options", **{k: v for k, v in query.items() if v})

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a session; a live one of that name and content is returned unchanged."""
        return await self._post("/sessions", body)

    async def get(self, session_id: str) -> dict[str, Any]:
        return await self._get(_path(session_id))

    async def find_live(self, hub_user: str, hub_server: str) -> dict[str, Any] | None:
        """Return the live session of a Hub server, None if there is none."""
        query = {"hub_user": hub_user, "hub_server": hub_server, "sort": "-created_at", "limit": 20}
        page = await self._get("/sessions", **query)
        live = (s for s in page["items"] if s["status"] in LIVE)
        return next(live, None)

    async def wait_until_prepared(self, session_id: str, seconds: float) -> dict[str, Any]:
        """Return the session when it no longer waits, or its state after ``seconds``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            left = max(0.0, deadline - loop.time())
            turn = min(left, LONG_POLL_SECONDS)
            session: dict[str, Any] = await self._client.get(
                _path(session_id),
                timeout_seconds=turn + ANSWER_SECONDS,
                wait=Status.PREPARED.value,
                timeout=f"{turn:.3f}",
            )
            if not is_waiting(session) or loop.time() >= deadline:
                return session

    async def detach(self, session_id: str) -> dict[str, Any]:
        """Let the manager start a waiting session later."""
        return await self._post(_path(session_id, "detach"), {})

    async def launch(self, session_id: str, user: str, server: str) -> LaunchPlan:
        body = {"user": user, "server": server}
        return LaunchPlan.from_json(await self._post(_path(session_id, "launch"), body))

    async def started(self, running: Running) -> None:
        body: dict[str, Any] = {"container_id": running.container_id}
        if running.subs:
            body["sub_containers"] = {sub.hostname: sub.container_id for sub in running.subs}
        await self._post(_path(running.session_id, "started"), body)

    async def exited(self, session_id: str, ended: Exit, logs: Logs = NO_LOGS) -> None:
        log, of_subs = logs
        body: dict[str, Any] = {
            "exit_code": ended.code,
            "reason": ended.text[:1000],
            "reason_code": ended.reason.value,
        }
        if not of_subs:
            body["log"] = fitting(log)
        else:
            body["log"] = fitting(log, MAX_LOG_BYTES // 2)
            share = MAX_LOG_BYTES // 2 // len(of_subs) - 128
            body["sub_logs"] = {name: fitting(text, share) for name, text in of_subs.items()}
        await self._post(_path(session_id, "exited"), body)

    async def report_exit(
        self, session_id: str, ended: Exit, logs: Logs, to: logging.Logger
    ) -> bool:
        """Report an end to the manager, with retries; return whether it was received.

        If not, the manager's reconciler learns it from the agent.
        """
        wait = REPORT_FIRST_WAIT_SECONDS
        for attempt in range(REPORT_TRIES):
            try:
                await self.exited(session_id, ended, logs)
                return True
            except errors.Unavailable as error:
                if attempt == REPORT_TRIES - 1:
                    to.warning("Session %s: its end could not be reported: %s", session_id, error)
            except errors.BaiError as error:
                to.warning("Session %s: its end was not accepted: %s", session_id, error)
                return False
            await asyncio.sleep(wait)
            wait *= 2
        return False

    async def cancel(self, session_id: str) -> None:
        await self._client.delete(_path(session_id))

    async def _get(self, path: str, **query: Any) -> dict[str, Any]:
        answer: dict[str, Any] = await self._client.get(path, **query)
        return answer

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await self._client.post(path, dict(body))
        return answer


def fitting(log: str, max_bytes: int = MAX_LOG_BYTES) -> str:
    """Return the longest suffix of ``log``, in whole lines, that fits into one JSON body."""

    def is_too_long(cut: int) -> bool:
        return len(json.dumps(log[cut:], ensure_ascii=False).encode(errors="replace")) > max_bytes

    if not is_too_long(0):
        return log
    first = bisect.bisect_left(range(len(log)), True, key=lambda cut: not is_too_long(cut))
    return log[first:].partition("\n")[2] or log[first:]


def _path(session_id: str, verb: str = "") -> str:
    # Escaped, because an id may come from a request to the Hub and must not select another route.
    path = f"/sessions/{quote(session_id, safe='')}"
    return f"{path}/{verb}" if verb else path
