"""REST client of the services that call the manager for every session: Hub and agent."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from bai_services.client import Token, is_near, raise_for_answer, unreachable
from bai_services.core import errors


class ServiceClient:
    """Calls ``{url}/api/v1`` as ``Client`` does, only with JSON, at a quarter of the CPU time.

    This matters because each start of a session needs several calls. A manager that cannot be
    reached raises ``Unavailable``, an error response the ``BaiError`` that it names.
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
        return await self._call("POST", path, body=body, timeout_seconds=timeout_seconds)

    async def delete(self, path: str, /, **query: Any) -> Any:
        return await self._call("DELETE", path, query=query)

    @property
    def _http(self) -> ClientSession:
        if self._session is None:
            # Created at the first call, because it belongs to the running event loop.
            self._session = ClientSession(
                cookie_jar=DummyCookieJar(),
                headers={"Authorization": f"Bearer {self._token.value}"},
                # Proxies of the environment are for the outside world, not for this machine or
                # private networks.
                trust_env=not is_near(self._host),
            )
            weakref.finalize(self, _leave, self._session)
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
        # Names in the path are already quoted; they must not be quoted again.
        question = f"?{urlencode(query)}" if query else ""
        url = URL(f"{self.url}/api/v1{path}{question}", encoded=True)
        content, headers = None, {}
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            headers = {"Content-Type": "application/json"}
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
                answer = await response.read()
        except (ClientError, TimeoutError) as error:
            raise unreachable(self.url) from error
        place = response.headers.get("Location", "")
        raise_for_answer(self._host, response.status, answer, place)
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise errors.BaiError(f"{self.url} does not answer as a resource manager") from None


def _leave(session: ClientSession) -> None:
    """Close an unclosed session when the process ends: the Hub offers no shutdown hook.

    No event loop runs any more, so nothing can be awaited.
    """
    with suppress(StopIteration):
        session.close().send(None)
