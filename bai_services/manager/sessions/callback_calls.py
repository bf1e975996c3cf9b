"""HTTP client for callbacks: one POST to an address given by a user, with restricted targets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from bai_services.core.client_address import parse_address
from bai_services.core.sessions.callbacks import AllowedTargets

TOTAL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
# Name lookups block a thread for as long as the name servers take, so they have threads of their
# own.
LOOKUPS = 4
_REFUSED = "its host has no address that callbacks may reach"

Lookup = Callable[[str, int], list[str]]


class CallFailed(Exception):
    """A callback that was not delivered; ``is_final``: another attempt would fail as well."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class _AddressRefused(OSError):
    pass


def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a name, as the operating system resolves it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class _Resolver(AbstractResolver):
    """Resolves names to the addresses that may be reached, and no others.

    The connection is made to exactly the addresses returned here, so a name that resolves to other
    addresses a moment later (DNS rebinding) reaches nothing more.
    """

    def __init__(self, reach: AllowedTargets, lookup: Lookup) -> None:
        self._reach = reach
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="callback-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, self._lookup, host, port)
        reached = [address for address in found if self._reach.allows_address(address)]
        if not reached:
            raise _AddressRefused(_REFUSED)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in reached
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class CallbackCalls:
    """Posts to URLs given by users: no redirects, no proxies, no cookies; the body is not read."""

    def __init__(
        self,
        reach: AllowedTargets,
        lookup: Lookup = look_up,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self.reach = reach
        self._lookup = lookup
        self._timeout = ClientTimeout(total=total_seconds, connect=CONNECT_SECONDS)
        self._session: ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send ``body``; any answer with status 200 to 299 is a success, its body is not read.

        Raises
        ------
        CallFailed
            With the reason, which contains nothing of the answer but its status.
        """
        address = URL(url, encoded=True)
        host = address.host or ""
        # A URL with a literal address is connected to without a lookup, so it is checked here.
        is_refused = parse_address(host) is not None and not self.reach.allows_address(host)
        if is_refused or self.reach.is_off or not self.reach.allows_name(host):
            raise CallFailed("callbacks to it are no longer allowed", is_final=True)
        try:
            async with self._http.post(
                address, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status = answer.status
        except TimeoutError:
            raise CallFailed("it did not answer in time") from None
        except (ClientError, OSError, ValueError) as error:
            raise _explained(error) from None
        if not 200 <= status < 300:
            is_redirect = 300 <= status < 400
            more = "; redirects are not followed" if is_redirect else ""
            raise CallFailed(f"it answered {status}{more}")

    @property
    def _http(self) -> ClientSession:
        if self._session is None:
            # Created at the first call, because it belongs to the event loop in which it is
            # created.
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


def _explained(error: Exception) -> CallFailed:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _AddressRefused):
            return CallFailed(_REFUSED, is_final=True)
        if isinstance(cause, socket.gaierror):
            return CallFailed("its host is not known")
        cause = cause.__cause__ or cause.__context__
    return CallFailed(f"it could not be reached or did not speak HTTP ({type(error).__name__})")
