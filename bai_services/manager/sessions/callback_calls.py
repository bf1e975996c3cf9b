"""HTTP client for callbacks: POST to URLs given by users, restricted to allowed addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from bai_services.core.ip_addresses import parse_address
from bai_services.core.sessions.callbacks import AllowedTargets

TOTAL_TIMEOUT_SECONDS = 10.0
CONNECT_TIMEOUT_SECONDS = 5.0
# DNS lookups block a thread until the name server responds, so they have their own thread pool.
MAX_CONCURRENT_LOOKUPS = 4
_NOT_ALLOWED = "the host of the callback URL has no address that callbacks may reach"

Lookup = Callable[[str, int], list[str]]


class CallFailed(Exception):
    """A callback that was not delivered; if ``is_final``, a retry would fail as well."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class _AddressNotAllowed(OSError):
    pass


def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host name from the system resolver."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


class _Resolver(AbstractResolver):
    """Resolves names to allowed addresses only.

    Connections use exactly the addresses returned here. A name that resolves to another address
    later (DNS rebinding) therefore gains no access.
    """

    def __init__(self, reach: AllowedTargets, lookup: Lookup) -> None:
        self._reach = reach
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(
            MAX_CONCURRENT_LOOKUPS, thread_name_prefix="callback-names"
        )

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        addresses = await loop.run_in_executor(self._threads, self._lookup, host, port)
        allowed = [address for address in addresses if self._reach.allows_address(address)]
        if not allowed:
            raise _AddressNotAllowed(_NOT_ALLOWED)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in allowed
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class CallbackCalls:
    """Posts to URLs given by users, without redirects, proxies or cookies."""

    def __init__(
        self,
        reach: AllowedTargets,
        lookup: Lookup = look_up,
        total_seconds: float = TOTAL_TIMEOUT_SECONDS,
    ) -> None:
        self.reach = reach
        self._lookup = lookup
        self._timeout = ClientTimeout(total=total_seconds, connect=CONNECT_TIMEOUT_SECONDS)
        self._session: ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send ``body``; a response with status 200 to 299 is a success.

        The body of the response is not read.

        Raises
        ------
        CallFailed
            If the URL is not allowed, cannot be reached or responds with another status. The
            message contains no other data of the response.
        """
        address = URL(url, encoded=True)
        host = address.host or ""
        # A literal IP address is not resolved, so check the address here.
        is_forbidden = parse_address(host) is not None and not self.reach.allows_address(host)
        if is_forbidden or self.reach.is_off or not self.reach.allows_name(host):
            raise CallFailed("callbacks to this URL are no longer allowed", is_final=True)
        try:
            async with self._http.post(
                address, data=body, headers=headers, allow_redirects=False
            ) as response:
                status = response.status
        except TimeoutError:
            raise CallFailed("the receiver did not respond in time") from None
        except (ClientError, OSError, ValueError) as error:
            raise _call_failed(error) from None
        if not 200 <= status < 300:
            is_redirect = 300 <= status < 400
            note = "; redirects are not followed" if is_redirect else ""
            raise CallFailed(f"the receiver responded with status {status}{note}")

    @property
    def _http(self) -> ClientSession:
        if self._session is None:
            # Created at the first call, because it is bound to the running event loop.
            self._session = ClientSession(
                connector=TCPConnector(
                    resolver=_Resolver(self.reach, self._lookup),
                    use_dns_cache=False,
                    force_close=True,
                ),
                cookie_jar=DummyCookieJar(),
                timeout=self._timeout,
                trust_env=False,
                auto_decompress=False,
            )
        return self._session


def _call_failed(error: Exception) -> CallFailed:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _AddressNotAllowed):
            return CallFailed(_NOT_ALLOWED, is_final=True)
        if isinstance(cause, socket.gaierror):
            return CallFailed("the host name of the callback URL cannot be resolved")
        cause = cause.__cause__ or cause.__context__
    return CallFailed(
        f"the receiver could not be reached or did not speak HTTP ({type(error).__name__})"
    )
