"""A session's requests to the manager, with the session's own token.

The token never leaves the server: the browser asks the session, which asks the manager. The token
stands for the session, not for the user (`bai_services.core.accounts.roles.Role.SESSION`).
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

CALL_SECONDS = 8.0
LIVE = "PENDING,SCHEDULED,PREPARING,PREPARED,RUNNING,TERMINATING"
MAX_SESSIONS = 50
OF_A_SHARE = ("id", "app", "audience", "user", "project", "allowed_addresses", "expires_at", "url")
MAX_FOLDERS = 200
# Fields for the panel. All others, such as environment variables with secrets, stay on the server.
SESSION_FIELDS = (
    *("id", "name", "type", "status", "status_info", "owner", "project", "domain", "image"),
    *("resource_group", "agent", "requested", "shared_memory", "mounts", "notices", "page"),
    *("started_at", "created_at", "cluster_size", "enforcement", "result"),
    *("ends_at", "lifetime", "idle_since", "idle_ends_at", "is_draining"),
)
OF_ANOTHER = (
    *("id", "name", "type", "status", "status_info", "image", "requested", "queue_position"),
    *("estimated_start", "started_at", "created_at", "starts_at", "url", "page"),
)
OF_A_FOLDER = (
    *("id", "name", "host", "owner", "project", "permission", "is_owner", "status"),
    *("used_bytes", "used_files"),
)
OF_A_SCOPE = ("host", "scope", "kind", "owner", "project", "limit_bytes", "used_bytes")
OF_A_KERNEL = ("hostname", "role", "agent")


class ManagerLink:
    """Knows its session from the environment that the engine has set.

    Every method raises ``Unavailable`` if the manager cannot be reached or this server is not a
    session, and the errors that the manager returns (``NotFound``, ``Forbidden`` …).
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.session_id = environ.get("BAI_SESSION_ID", "")
        self._url = environ.get("BAI_MANAGER_URL", "")
        self._token = environ.get("JUPYTERHUB_API_TOKEN", "")
        self._devices = environ.get("BAI_DEVICES", "")

    @cached_property
    def _client(self) -> Client:
        # Created at the first request: it costs more than the rest of the extension's start.
        if not (self.session_id and self._url and self._token):
            raise Unavailable("this server is not a session of a resource manager")
        return Client(self._url, Token(self._token), CALL_SECONDS)

    async def session(self) -> dict[str, Any]:
        """Return the facts of this session; ``devices`` has shares and their enforcement levels."""
        found = await self._client.get(self._path(self.session_id))
        return self._shown(found)

    async def ssh_keys(self) -> list[str]:
        """Return the public keys with which the owner may sign in now."""
        return [key["public_key"] for key in (await self._client.get("/me/ssh-keys"))["items"]]

    async def parts(self, names: Collection[str]) -> tuple[dict[str, Any], BaiError | None]:
        """Return the named parts of session, usage, folders and sessions.

        The first part that cannot be read ends the query; its error is returned beside the parts
        before it.
        """
        found: dict[str, Any] = {}
        readers = {
            "session": self.session,
            "usage": self.usage,
            "folders": self.folders,
            "sessions": self.sessions,
        }
        for name in (name for name in readers if name in names):
            try:
                found[name] = await readers[name]()
            except BaiError as error:
                return found, error
        return found, None

    async def usage(self) -> dict[str, Any]:
        """Return the usage of the session's kernels, as last reported by their agents."""
        found = await self._client.get(self._path(self.session_id) + "/usage")
        return {"kernels": [{"at": k["at"], "usage": k["usage"]} for k in found["kernels"]]}

    async def folders(self) -> dict[str, Any]:
        """Return the owner's folders and quotas; ``path``: where this session has mounted one."""
        session = await self._client.get(self._path(self.session_id))
        paths = {mount["vfolder_id"]: mount["path"] for mount in session["mounts"]}
        found = await self._client.get("/vfolders", limit=MAX_FOLDERS, sort="name")
        items = [
            {**_picked(folder, OF_A_FOLDER), "path": paths.get(folder["id"])}
            for folder in found["items"]
            # Folders in the trash cannot be used.
            if not str(folder["status"]).startswith("delete")
        ]
        scopes = await self._client.get("/quota-scopes", limit=MAX_FOLDERS)
        quotas = [_picked(scope, OF_A_SCOPE) for scope in scopes["items"]]
        return {"items": items, "total": found["total"], "quotas": quotas}

    async def sessions(self) -> dict[str, Any]:
        """Return the owner's other live sessions, the newest first."""
        found = await self._client.get(
            "/sessions", status__in=LIVE, limit=MAX_SESSIONS, sort="-created_at"
        )
        others = [item for item in found["items"] if item["id"] != self.session_id]
        return {"items": [{**_picked(i, OF_ANOTHER), "reason": _reason(i)} for i in others]}

    async def log(self, kernel: str, mark: str, has_times: bool = False) -> dict[str, Any]:
        """Return the output of one kernel, or only the output since the answer with that mark.

        ``is_more`` tells the two apart.
        """
        query: dict[str, Any] = {"kernel": kernel} if kernel else {}
        if has_times:
            query["times"] = "true"
        found = await self._client.get(self._path(self.session_id) + "/logs", **query)
        text = str(found["log"])
        known = known_length(text, mark)
        return {
            "log": text[known:],
            "mark": log_mark(text),
            "is_more": known > 0,
            "is_live": found["is_live"],
        }

    async def visit(self, shown: Mapping[str, str]) -> dict[str, Any]:
        """Ask whether a visitor may use an app; ``shown`` has the app, the visitor's entry or
        pass, and address.
        """
        found = await self._client.post("/app-visits", {"session_id": self.session_id, **shown})
        return dict(found)

    async def shares(self) -> dict[str, Any]:
        """Return the shares of this session's apps."""
        found = await self._client.get(
            self._path(self.session_id) + "/app-shares", limit=MAX_FOLDERS
        )
        return {"items": [_picked(item, OF_A_SHARE) for item in found["items"]]}

    async def extend(self, seconds: int) -> dict[str, Any]:
        """Extend this session's lifetime by ``seconds``, as far as its policy allows."""
        path = self._path(self.session_id) + "/lifetime"
        return self._shown(await self._client.post(path, {"seconds": seconds}))

    async def report_use(self, idle_seconds: float) -> dict[str, Any]:
        """Report for how long this session has been unused; the answer says when that ends it."""
        path = self._path(self.session_id) + "/activity"
        return dict(await self._client.post(path, {"idle_seconds": idle_seconds}))

    async def rename(self, name: str) -> dict[str, Any]:
        """Rename this session."""
        found = await self._client.patch(self._path(self.session_id), {"name": name})
        return self._shown(found)

    async def stop(self, session_id: str) -> None:
        """Stop this session or another one of its owner's."""
        await self._client.delete(self._path(session_id))

    @staticmethod
    def _path(session_id: str) -> str:
        if not session_id:
            raise NotFound("no session was given")
        return f"/sessions/{quote(session_id, safe='')}"

    def _shown(self, found: Mapping[str, Any]) -> dict[str, Any]:
        kernels = [_picked(kernel, OF_A_KERNEL) for kernel in found.get("kernels") or ()]
        return {
            **_picked(found, SESSION_FIELDS),
            "devices": self._own_devices(),
            "kernels": kernels,
        }

    def _own_devices(self) -> list[dict[str, Any]]:
        try:
            devices = json.loads(self._devices or "[]")
        except ValueError:
            return []
        return devices if isinstance(devices, list) else []


def _reason(session: Mapping[str, Any]) -> str:
    """Return why a session is pending, in words."""
    failed = (r for r in session.get("reasons") or () if not r.get("passed"))
    return next((str(reason.get("message", "")) for reason in failed), "")


def log_mark(text: str) -> str:
    """Return a short hash by which a text is recognized after more was appended."""
    return f"{len(text)}-{zlib.crc32(text.encode())}"


def known_length(text: str, mark: str) -> int:
    """Return how many characters of a text the mark covers; 0 if it belongs to another text."""
    length = mark.partition("-")[0]
    count = read_whole(length) or 0
    return count if 0 < count <= len(text) and log_mark(text[:count]) == mark else 0


def _picked(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: found.get(name) for name in names}
