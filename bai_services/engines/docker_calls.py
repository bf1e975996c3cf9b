"""Thread pools for Docker's blocking client, so that no endpoint and no user blocks the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import docker

from bai_services.docker_clients import DockerClients, EngineUnavailable

from .base import EngineUnreachable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallLimits:
    threads: int
    calls_per_user: int
    timeout_seconds: float


class DockerCalls:
    """Run calls in threads: one pool per endpoint.

    A hanging call occupies one thread of its endpoint until the timeout. A user has at most
    ``calls_per_user`` calls in progress at an endpoint; a cancelled call counts until it returns.
    """

    def __init__(self, limits: CallLimits, tls_folder: str = "") -> None:
        self._limits = limits
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._users: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._clients = DockerClients(limits.timeout_seconds, tls_folder)

    async def run(
        self, endpoint: str, user: str, call: Callable[[docker.APIClient], T], shield: bool = False
    ) -> T:
        """Run ``call`` in a thread, with the thread's client for the endpoint; return the result.

        A call cannot be interrupted. If this coroutine is cancelled, it ends at once, or with
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
        loop = asyncio.get_running_loop()

        def release(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(semaphore.release)

        await semaphore.acquire()
        work = pool.submit(self._call, endpoint, call)
        work.add_done_callback(release)
        future = asyncio.wrap_future(work)
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
        self._clients.close()

    def _call(self, endpoint: str, call: Callable[[docker.APIClient], T]) -> T:
        try:
            return self._clients.call(endpoint, call)
        except EngineUnavailable as error:
            raise EngineUnreachable(
                f"the Docker engine at {endpoint} cannot be reached; try again shortly"
            ) from error
