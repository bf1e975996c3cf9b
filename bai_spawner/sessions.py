"""The spawner's client for the manager's session API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bai_services.client import Token
from bai_services.core import errors
from bai_services.core.coded_text import TextTemplate
from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.core.sessions.lifecycle import ENDED, LIVE, Status
from bai_services.core.sessions.logs import MAX_LOG_BYTES, truncated
from bai_services.engines.base import Exit, Running
from bai_services.service_client import ServiceClient

MAX_REPORT_ATTEMPTS = 4
FIRST_REPORT_PAUSE_SECONDS = 0.2
LONG_POLL_SECONDS = 20
# Time for the response itself, added to the duration of a long poll.
RESPONSE_TIMEOUT_SECONDS = 15
# Output of a session's main kernel, and of its sub kernels by hostname.
Logs = tuple[str, Mapping[str, str]]
NO_LOGS: Logs = ("", {})

_LOST_CODES = frozenset(
    {TextTemplate.AGENT_LOST_REQUEUED.code, TextTemplate.AGENTS_LOST_OFTEN.code}
)
UNPREPARED = frozenset({Status.SUSPENDED, Status.PENDING, Status.SCHEDULED, Status.PREPARING})


def is_ended(session: Mapping[str, Any]) -> bool:
    return session["status"] in ENDED


def was_stopped_before_start(session: Mapping[str, Any]) -> bool:
    """Return whether a session that the manager starts itself was stopped before it started.

    Such a session must not be created again, because its user has stopped it.
    """
    was_stopped = session["status"] in (Status.CANCELLED, Status.TERMINATED)
    return was_stopped and session["started_by"] == "manager" and not session["started_at"]


def is_unprepared(session: Mapping[str, Any]) -> bool:
    """Return whether a session is pending or still being prepared."""
    return session["status"] in UNPREPARED


class Sessions:
    """Call the manager with the Hub's secret.

    A failed call raises a ``BaiError``, except in ``report_exit``.
    """

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    @classmethod
    def connect(cls, manager_url: str, token_file: str, timeout_seconds: float) -> Sessions:
        """Return a client for the manager at ``manager_url``; send no request yet.

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
        """Return the options of the start form for ``owner``: projects, groups, images, limits."""
        query = {"owner": owner, "project": project, "resource_group": group}
        return await self._get("/sessions/options", **{k: v for k, v in query.items() if v})

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a session, or find the live session with the same name and request; return it."""
        return await self._post("/sessions", body)

    async def get(self, session_id: str) -> dict[str, Any]:
        return await self._get(_path(session_id))

    async def has_lost_agent(self, session_id: str) -> bool:
        """Return whether a session is stopped because it has lost an agent.

        In this case, its kernels on lost agents have already stopped.
        """
        coded = (await self.get(session_id))["status_coded"] or {}
        return coded.get("code") in _LOST_CODES

    async def find_live(self, hub_user: str, hub_server: str) -> dict[str, Any] | None:
        """Return the live session of a Hub server, or None."""
        query = {"hub_user": hub_user, "hub_server": hub_server, "sort": "-created_at", "limit": 20}
        page = await self._get("/sessions", **query)
        live = (s for s in page["items"] if s["status"] in LIVE)
        return next(live, None)

    async def wait_until_prepared(self, session_id: str, seconds: float) -> dict[str, Any]:
        """Wait up to ``seconds`` until a session is prepared or has ended; return the session."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            seconds_left = max(0.0, deadline - loop.time())
            poll_seconds = min(seconds_left, LONG_POLL_SECONDS)
            session: dict[str, Any] = await self._client.get(
                _path(session_id),
                timeout_seconds=poll_seconds + RESPONSE_TIMEOUT_SECONDS,
                wait=Status.PREPARED.value,
                timeout=f"{poll_seconds:.3f}",
            )
            if not is_unprepared(session) or loop.time() >= deadline:
                return session

    async def resume(self, session_id: str) -> dict[str, Any]:
        """Put a suspended session back into the queue; return the session."""
        return await self._post(_path(session_id, "resume"), {})

    async def detach(self, session_id: str) -> dict[str, Any]:
        """Let the manager start a pending session when it is prepared; return the session."""
        return await self._post(_path(session_id, "detach"), {})

    async def launch(self, session_id: str, user: str, server: str) -> LaunchPlan:
        body = {"user": user, "server": server}
        return LaunchPlan.from_json(await self._post(_path(session_id, "launch"), body))

    async def started(self, running: Running) -> None:
        body: dict[str, Any] = {"container_id": running.container_id, "url": running.url}
        if running.subs:
            body["sub_containers"] = {sub.hostname: sub.container_id for sub in running.subs}
        await self._post(_path(running.session_id, "started"), body)

    async def exited(self, session_id: str, ended: Exit, logs: Logs = NO_LOGS) -> None:
        log, sub_logs = logs
        body: dict[str, Any] = {
            "exit_code": ended.code,
            "reason": ended.text[:1000],
            "reason_code": ended.reason.value,
        }
        if not sub_logs:
            body["log"] = truncated(log)
        else:
            body["log"] = truncated(log, MAX_LOG_BYTES // 2)
            share = MAX_LOG_BYTES // 2 // len(sub_logs) - 128
            body["sub_logs"] = {name: truncated(text, share) for name, text in sub_logs.items()}
        await self._post(_path(session_id, "exited"), body)

    async def report_exit(
        self, session_id: str, ended: Exit, logs: Logs, to: logging.Logger
    ) -> bool:
        """Report the end of a session to the manager; return whether the manager accepted it.

        While the manager is unavailable, the report is retried with exponential backoff, up to
        ``MAX_REPORT_ATTEMPTS`` times in total. If all attempts fail, the manager detects the end by
        the agent's heartbeats.
        """
        pause = FIRST_REPORT_PAUSE_SECONDS
        for attempt in range(MAX_REPORT_ATTEMPTS):
            try:
                await self.exited(session_id, ended, logs)
                return True
            except errors.Unavailable as error:
                if attempt == MAX_REPORT_ATTEMPTS - 1:
                    to.warning("Session %s: its end could not be reported: %s", session_id, error)
            except errors.BaiError as error:
                to.warning(
                    "Session %s: the manager rejected the report of its end: %s", session_id, error
                )
                return False
            await asyncio.sleep(pause)
            pause *= 2
        return False

    async def cancel(self, session_id: str) -> None:
        await self._client.delete(_path(session_id))

    async def _get(self, path: str, **query: Any) -> dict[str, Any]:
        response: dict[str, Any] = await self._client.get(path, **query)
        return response

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        response: dict[str, Any] = await self._client.post(path, dict(body))
        return response


def _path(session_id: str, verb: str = "") -> str:
    # Escape the id: it may come from a request to the Hub and must not select another route.
    path = f"/sessions/{quote(session_id, safe='')}"
    return f"{path}/{verb}" if verb else path
