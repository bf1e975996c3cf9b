"""Calls of Docker's blocking client in threads, with separate pools for short and long calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import docker

from bai_services.core.errors import Unavailable
from bai_services.docker_clients import DockerClients, EngineUnavailable

T = TypeVar("T")

# Number of threads by kind of call; pools are separate, so that many pulls do not block queries.
# Commits run one after another: the thread of a cancelled commit continues until Docker responds.
POOLS = {"query": 8, "change": 8, "pull": 4, "commit": 1, "build": 2}


class DockerCalls:
    """Thread pools for calls of one engine.

    A call that never returns occupies its thread until the process ends.
    """

    def __init__(self, endpoint: str, timeout_seconds: float) -> None:
        self.endpoint = endpoint
        self._pools = {
            name: ThreadPoolExecutor(size, thread_name_prefix=f"docker-{name}")
            for name, size in POOLS.items()
        }
        self._clients = DockerClients(timeout_seconds)

    async def run(self, pool: str, call: Callable[[docker.APIClient], T]) -> T:
        """Run ``call`` in a thread of the pool, with that thread's client; return the result.

        Raises
        ------
        Unavailable
            If the engine does not respond. Errors that Docker reports (``APIError``) are passed
            through.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pools[pool], self._call, call)

    def close(self) -> None:
        """Close all clients without waiting for running calls."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._clients.close()

    def _call(self, call: Callable[[docker.APIClient], T]) -> T:
        try:
            return self._clients.call(self.endpoint, call)
        except EngineUnavailable as error:
            raise Unavailable(
                f"the Docker engine at {self.endpoint} does not respond; try again shortly"
            ) from error
