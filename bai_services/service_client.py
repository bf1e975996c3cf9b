"""REST client of the Hub and the agents for the manager."""

from __future__ import annotations

import json
import ssl
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from bai_services import tracing
from bai_services.client import Token, is_local, not_a_manager, raise_for_status, unreachable


class ServiceClient:
    """Calls ``{url}/api/v1`` like ``Client``, but sends and receives only JSON.

    A call takes a quarter of the CPU time of a call with ``Client``. This matters because each
    start of a session takes several calls. Calls raise ``Unavailable`` if the manager is
    unreachable, and the ``BaiError`` named in an error response.
    """

    def __init__(self, url: str, token: Token, timeout_seconds: float = 30) -> None:
        self.url = url.rstrip("/")
        self._host = URL(self.url).host or ""
        self._token = token
        self._timeout_seconds = timeout_seconds
        self._session: ClientSession | None = None

    async def __aenter__(self) -> ServiceClient:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, /, timeout_seconds: float | None = None, **query: Any) -> Any:
        return await self._call("GET", path, query=query, timeout_seconds=timeout_seconds)

    async def post(self, path: str, body: Any = None, timeout_seconds: float | None = None) -> Any:
        """Send ``body`` as JSON; bytes must already contain JSON and are sent unchanged."""
        return await self._call("POST", path, body=body, timeout_seconds=timeout_seconds)

    async def put(self, path: str, body: Any = None) -> Any:
        return await self._call("PUT", path, body=body)

    async def delete(self, path: str, /, **query: Any) -> Any:
        return await self._call("DELETE", path, query=query)

    @property
    def _http(self) -> ClientSession:
        if self._session is None:
            # Created by the first call, because it is bound to the running event loop. By default,
            # aiohttp uses the certificate authorities that the environment named at its import, but
            # an agent reads its variables later.
            is_encrypted = self.url.startswith("https:")
            self._session = ClientSession(
                connector=TCPConnector(ssl=ssl.create_default_context()) if is_encrypted else None,
                cookie_jar=DummyCookieJar(),
                headers={"Authorization": f"Bearer {self._token.value}"},
                # Proxies configured in the environment are for external hosts, not for this
                # machine or private networks.
                trust_env=not is_local(self._host),
            )
            weakref.finalize(self, _close_without_loop, self._session)
        return self._session

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        # Names in the path are already percent-encoded.
        query_text = f"?{urlencode(query)}" if query else ""
        url = URL(f"{self.url}/api/v1{path}{query_text}", encoded=True)
        content: bytes | None = None
        headers: dict[str, str] = {}
        if body is not None:
            content = body if isinstance(body, bytes) else to_json(body)
            headers["Content-Type"] = "application/json"
        tracing.inject(headers)
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            async with self._http.request(
                method,
                url,
                data=content,
                headers=headers,
                timeout=ClientTimeout(seconds),
                allow_redirects=False,
            ) as response:
                body_bytes = await response.read()
        except (ClientError, TimeoutError) as error:
            raise unreachable(self.url, error) from error
        location = response.headers.get("Location", "")
        raise_for_status(self._host, response.status, body_bytes, location)
        try:
            return json.loads(body_bytes) if body_bytes else None
        except ValueError:
            raise not_a_manager(self.url) from None


def to_json(body: Any) -> bytes:
    """Return a body as compact JSON in UTF-8."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _close_without_loop(session: ClientSession) -> None:
    """Close an unclosed session at the end of the process: the Hub has no shutdown hook.

    The event loop has stopped, so the coroutine is advanced manually.
    """
    with suppress(StopIteration):
        session.close().send(None)
