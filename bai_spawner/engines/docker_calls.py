"""Thread pools for Docker's blocking client, so that no endpoint and no user blocks the others."""

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
    """Run calls in threads: one pool per endpoint, one client per thread and endpoint.

    A hanging call occupies one thread of its endpoint until the timeout. A user occupies at most
    ``calls_per_user`` threads of an endpoint.
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
        """Run ``call`` with the thread's client for the endpoint, and return its result.

        A call cannot be interrupted. If this coroutine is cancelled, it returns at once, or with
        ``shield`` only after the end of the call.

        Raises
        ------
        EngineUnreachable
            If the endpoint does not respond in time. Errors reported by Docker are passed through.
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
        """Close the pools and the clients' connections without waiting for running calls."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for client in self._all_clients:
            client.close()

    def _call(self, endpoint: str, call: Callable[[docker.APIClient], T]) -> T:
        try:
            return call(self._client(endpoint))
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
            # docker.errors.APIError is a subclass of RequestException, but means that the engine
            # has responded.
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
