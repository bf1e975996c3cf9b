"""Client of the manager, authenticated with the session's own token.

The panel in the browser needs no token: it sends its requests to the session, which sends them to
the manager. The token authorizes the session, not the user
(`bai_services.core.accounts.roles.Role.SESSION`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote

from bai_services.client import Client, Token
from bai_services.core.errors import BaiError, NotFound, Unavailable
from bai_services.core.user_input import read_whole

CALL_TIMEOUT_SECONDS = 8.0
# Statuses of live sessions that are not pending.
ACTIVE = "SCHEDULED,PREPARING,PREPARED,RUNNING,TERMINATING"
ANNOUNCEMENT_FIELDS = ("id", "title", "level")
MAX_ANNOUNCEMENTS = 5
MAX_SESSIONS = 50
# Fields that are sent to the panel. Environment variables are excluded, because they can contain
# secrets.
SHARE_FIELDS = (
    *("id", "app", "audience", "user", "project", "allowed_addresses", "expires_at", "url"),
)
SESSION_FIELDS = (
    *("id", "name", "type", "status", "status_info", "owner", "project", "domain", "image"),
    *("resource_group", "agent", "requested", "shared_memory", "mounts", "notices", "page"),
    *("started_at", "created_at", "cluster_size", "enforcement", "result"),
    *("ends_at", "lifetime", "idle_since", "idle_ends_at", "is_draining"),
    *("idle_checks", "end_rule", "preemption"),
)
OTHER_SESSION_FIELDS = (
    *("id", "name", "type", "status", "status_info", "image", "requested", "queue_position"),
    *("estimated_start", "started_at", "created_at", "starts_at", "url", "page"),
)
FOLDER_FIELDS = (
    *("id", "name", "host", "owner", "project", "permission", "is_owner", "status"),
    *("is_managed", "used_bytes", "used_files"),
)
QUOTA_SCOPE_FIELDS = ("host", "scope", "kind", "owner", "project", "limit_bytes", "used_bytes")
KERNEL_FIELDS = ("hostname", "role", "agent")


class ManagerLink:
    """Sends requests to the manager as this session.

    Environment variables, which the engine sets, identify the session.

    Requests raise ``Unavailable`` if this server is not a session or the manager cannot be reached.
    If the manager returns an error (``NotFound``, ``Forbidden`` …), they raise that error.
    ``read_sections`` returns these errors instead.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.session_id = environ.get("BAI_SESSION_ID", "")
        self._url = environ.get("BAI_MANAGER_URL", "")
        self._token = environ.get("JUPYTERHUB_API_TOKEN", "")
        self._devices = environ.get("BAI_DEVICES", "")

    @cached_property
    def _client(self) -> Client:
        # Create the client at the first request, because this takes longer than the rest of the
        # extension's start.
        if not (self.session_id and self._url and self._token):
            raise Unavailable("this server is not a session of a resource manager")
        return Client(self._url, Token(self._token), CALL_TIMEOUT_SECONDS)

    async def session(self) -> dict[str, Any]:
        """Return this session; ``devices`` has its device shares with their enforcement levels."""
        session = await self._client.get(self._path(self.session_id))
        return self._panel_session(session)

    async def ssh_keys(self) -> list[str]:
        """Return the registered SSH public keys of the owner."""
        return [key["public_key"] for key in (await self._client.get("/me/ssh-keys"))["items"]]

    async def read_sections(self, names: Collection[str]) -> tuple[dict[str, Any], BaiError | None]:
        """Read the named sections. The names are those of ``readers``.

        If a section cannot be read, return the sections before it, and the error.
        """
        sections: dict[str, Any] = {}
        readers = {
            "session": self.session,
            "usage": self.usage,
            "folders": self.folders,
            "sessions": self.sessions,
            "announcements": self.announcements,
        }
        for name in (name for name in readers if name in names):
            try:
                sections[name] = await readers[name]()
            except BaiError as error:
                return sections, error
        return sections, None

    async def usage(self) -> dict[str, Any]:
        """Return the usage of the session's kernels, as last reported by their agents."""
        usage = await self._client.get(self._path(self.session_id) + "/usage")
        return {"kernels": [{"at": k["at"], "usage": k["usage"]} for k in usage["kernels"]]}

    async def folders(self) -> dict[str, Any]:
        """Return the owner's folders and quotas.

        ``path`` of a folder is its mount point in this session, None if it is not mounted.
        """
        session = await self._client.get(self._path(self.session_id))
        paths = {mount["vfolder_id"]: mount["path"] for mount in session["mounts"]}
        items = [
            {**_pick(folder, FOLDER_FIELDS), "path": paths.get(folder["id"])}
            async for folder in self._client.items("/vfolders", sort="name")
            # Omit folders in the trash.
            if not str(folder["status"]).startswith("delete")
        ]
        scopes = self._client.items("/quota-scopes")
        quotas = [_pick(scope, QUOTA_SCOPE_FIELDS) async for scope in scopes]
        return {"items": items, "total": len(items), "quotas": quotas}

    async def sessions(self) -> dict[str, Any]:
        """Return the owner's other live sessions, the newest first, and their number.

        If there are more than ``MAX_SESSIONS`` sessions, omit pending ones first. Further pages are
        not read, because the panel polls this list.
        """
        items: list[dict[str, Any]] = []
        total = 0
        for statuses in (ACTIVE, "PENDING"):
            page = await self._client.get(
                "/sessions", status__in=statuses, limit=MAX_SESSIONS, sort="-created_at"
            )
            items += page["items"]
            total += page["total"]
        others = [item for item in items if item["id"] != self.session_id][:MAX_SESSIONS]
        others.sort(key=lambda item: str(item["created_at"]), reverse=True)
        # This session is one of the live sessions.
        return {
            "items": [{**_pick(i, OTHER_SESSION_FIELDS), **_reason(i)} for i in others],
            "total": max(total - 1, 0),
        }

    async def announcements(self) -> dict[str, Any]:
        """Return the current announcements for the owner that the owner has not dismissed.

        A manager of an older version has none.
        """
        try:
            page = await self._client.get(
                "/announcements/current", is_dismissed="false", limit=MAX_ANNOUNCEMENTS
            )
        except NotFound:
            return {"items": []}
        return {"items": [_pick(item, ANNOUNCEMENT_FIELDS) for item in page["items"]]}

    async def log(self, kernel: str, cursor: str, has_times: bool = False) -> dict[str, Any]:
        """Return the output of a kernel.

        If ``cursor`` is the cursor of an earlier response, return only the output since then. If
        ``is_more`` is true, ``log`` continues the earlier text, otherwise it replaces that text.
        """
        query: dict[str, Any] = {"kernel": kernel} if kernel else {}
        if has_times:
            query["times"] = "true"
        response = await self._client.get(self._path(self.session_id) + "/logs", **query)
        text = str(response["log"])
        known = known_length(text, cursor)
        return {
            "log": text[known:],
            "cursor": log_cursor(text),
            "is_more": known > 0,
            "is_live": response["is_live"],
        }

    async def visit(self, credentials: Mapping[str, str]) -> dict[str, Any]:
        """Check whether a visitor may use an app, and return the manager's response.

        ``credentials`` contains ``app``, ``client_ip``, and either an entry token (``entry``) or
        the token of a visit (``visit``). The response to an entry token contains the token of
        the new visit.
        """
        body = {"session_id": self.session_id, **credentials}
        return dict(await self._client.post("/app-visits", body))

    async def shares(self) -> dict[str, Any]:
        """Return the shares of this session's apps."""
        shares = self._client.items(self._path(self.session_id) + "/app-shares")
        return {"items": [_pick(item, SHARE_FIELDS) async for item in shares]}

    async def extend(self, seconds: int) -> dict[str, Any]:
        """Extend this session's maximum run time by ``seconds``; return the session.

        The manager rejects the request if the policy does not allow this extension.
        """
        path = self._path(self.session_id) + "/lifetime"
        return self._panel_session(await self._client.post(path, {"seconds": seconds}))

    async def report_idle_time(self, idle_seconds: float) -> dict[str, Any]:
        """Report how long this session has been idle.

        ``next_report_seconds`` of the response is the time until the next report.
        """
        path = self._path(self.session_id) + "/activity"
        return dict(await self._client.post(path, {"idle_seconds": idle_seconds}))

    async def keep_alive(self) -> dict[str, Any]:
        """Restart the time windows of this session's idle checkers; return the session."""
        path = self._path(self.session_id) + "/idle-checks/keep-alive"
        return self._panel_session(await self._client.post(path))

    async def stop_notice(self, wait_seconds: float) -> dict[str, Any] | None:
        """Wait for the notice to prepare for a stop; None if none arrives in that time."""
        response = await self._client.get(
            self._path(self.session_id) + "/stop-notice",
            timeout_seconds=wait_seconds + CALL_TIMEOUT_SECONDS,
            timeout=wait_seconds,
        )
        notice = response["notice"]
        return None if notice is None else dict(notice)

    async def report_preparation(self, report: Mapping[str, Any]) -> None:
        """Report what was saved; the manager then stops this session."""
        await self._client.post(self._path(self.session_id) + "/stop-notice", dict(report))

    async def rename(self, name: str) -> dict[str, Any]:
        """Rename this session and return it."""
        session = await self._client.patch(self._path(self.session_id), {"name": name})
        return self._panel_session(session)

    async def stop(self, session_id: str) -> None:
        """Stop this session or another session of its owner."""
        await self._client.delete(self._path(session_id))

    @staticmethod
    def _path(session_id: str) -> str:
        if not session_id:
            raise NotFound("the id of the session is missing")
        return f"/sessions/{quote(session_id, safe='')}"

    def _panel_session(self, session: Mapping[str, Any]) -> dict[str, Any]:
        kernels = [_pick(kernel, KERNEL_FIELDS) for kernel in session.get("kernels") or ()]
        return {
            **_pick(session, SESSION_FIELDS),
            "devices": self._own_devices(),
            "kernels": kernels,
        }

    def _own_devices(self) -> list[dict[str, Any]]:
        try:
            devices = json.loads(self._devices or "[]")
        except ValueError:
            return []
        return devices if isinstance(devices, list) else []


def _reason(session: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with the first reason why a session is pending; empty if it is not."""
    failed = (r for r in session.get("reasons") or () if not r.get("passed"))
    first: Mapping[str, Any] = next(failed, {})
    return {"reason": str(first.get("message", "")), "reason_coded": first.get("coded")}


def log_cursor(text: str) -> str:
    """Return the length and hash of a text, which identify it as a prefix of a longer text."""
    return f"{len(text)}-{zlib.crc32(text.encode())}"


def known_length(text: str, cursor: str) -> int:
    """Return the length of the prefix of ``text`` that has this cursor; 0 without such a prefix."""
    length = cursor.partition("-")[0]
    count = read_whole(length) or 0
    return count if 0 < count <= len(text) and log_cursor(text[:count]) == cursor else 0


def _pick(content: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: content.get(name) for name in names}
