"""Docker's blocking client in threads: no endpoint and no user can block the others."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import docker
import requests
import urllib3
from docker.tls import TLSConfig

from .base import EngineUnreachable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallLimits:
    threads: int
    calls_per_user: int
    timeout_seconds: float


class DockerCalls:
    """Runs calls in threads: one pool per endpoint, one client per thread.

    A call that never returns occupies one thread of its endpoint until the timeout; one user
    occupies at most ``calls_per_user`` threads.
    """

    def __init__(self, limits: CallLimits, tls_folder: str = "") -> None:
        self._limits = limits
        self._tls_folder = tls_folder
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._users: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._clients = threading.local()
        self._all_clients: list[docker.APIClient] = []

    async def run(
        self, endpoint: str, user: str, call: Callable[[docker.APIClient], T], shield: bool = False
    ) -> T:
        """Return the result of ``call``; its argument is the thread's client for the endpoint.

        With ``shield`` a cancellation waits for the end of the call, which cannot be interrupted.

        Raises
        ------
        EngineUnreachable
            If the endpoint does not answer in time. Errors reported by Docker are passed through.
        """
        pool = self._pools.get(endpoint)
        if pool is None:
            pool = self._pools[endpoint] = ThreadPoolExecutor(
                self._limits.threads, thread_name_prefix="bai-docker"
            )
        semaphore = self._users.setdefault(
            (endpoint, user), asyncio.Semaphore(self._limits.calls_per_user)
        )
        async with semaphore:
            work = functools.partial(self._call, endpoint, call)
            future = asyncio.get_running_loop().run_in_executor(pool, work)
            if not shield:
                return await future
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                await asyncio.wait([future])
                raise

    def close(self) -> None:
        """Stop the threads and close their connections without waiting for running calls."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for client in self._all_clients:
            client.close()

    def _call(self, endpoint: str, call: Callable[[docker.APIClient], T]) -> T:
        try:
            return call(self._client(endpoint))
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
            # docker's APIError is a subclass of requests' errors: it is a response, not a timeout.
            if isinstance(error, docker.errors.APIError):
                raise
            raise EngineUnreachable(
                f"the Docker engine at {endpoint} cannot be reached; try again shortly"
            ) from error

    def _client(self, endpoint: str) -> docker.APIClient:
        clients: dict[str, Any] | None = getattr(self._clients, "by_endpoint", None)
        if clients is None:
            clients = self._clients.by_endpoint = {}
        if endpoint not in clients:
            try:
                clients[endpoint] = docker.APIClient(
                    base_url=endpoint,
                    version="auto",
                    timeout=self._limits.timeout_seconds,
                    tls=self._tls() if endpoint.startswith(("tcp://", "https://")) else False,
                )
            except docker.errors.DockerException as error:
                raise EngineUnreachable(
                    f"the Docker engine at {endpoint} cannot be reached; try again shortly"
                ) from error
            self._all_clients.append(clients[endpoint])
        return clients[endpoint]

    def _tls(self) -> TLSConfig | bool:
        if not self._tls_folder:
            return False
        folder = Path(self._tls_folder)
        return TLSConfig(
            client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
            ca_cert=str(folder / "ca.pem"),
            verify=True,
        )
