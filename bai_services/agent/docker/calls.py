"""Docker's blocking client in threads, with separate pools for short and long calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import docker
import requests
import urllib3

from bai_services.core.errors import Unavailable

T = TypeVar("T")

# Separate threads for queries, changes and pulls: ten pulls leave the others free.
POOLS = {"look": 8, "change": 8, "pull": 4}


class DockerCalls:
    """Runs calls in threads with a client each; a call that never ends occupies its thread."""

    def __init__(self, endpoint: str, timeout_seconds: float) -> None:
        self.endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._pools = {
            name: ThreadPoolExecutor(size, thread_name_prefix=f"docker-{name}")
            for name, size in POOLS.items()
        }
        self._mine = threading.local()
        self._clients: list[docker.APIClient] = []
        self._lock = threading.Lock()

    async def run(self, pool: str, call: Callable[[docker.APIClient], T]) -> T:
        """Return what ``call`` returns; it gets the client of its thread.

        Raises
        ------
        Unavailable
            If the engine does not answer. Docker's own refusals are passed on unchanged.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pools[pool], self._call, call)

    def close(self) -> None:
        """Release the engine; calls in progress end by themselves."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for client in self._clients:
                client.close()

    def _call(self, call: Callable[[docker.APIClient], T]) -> T:
        try:
            return call(self._client())
        except docker.errors.APIError:
            raise
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        ) as error:
            raise Unavailable(
                f"the Docker engine at {self.endpoint} does not answer; try again shortly"
            ) from error

    def _client(self) -> docker.APIClient:
        client: Any = getattr(self._mine, "client", None)
        if client is None:
            client = docker.APIClient(
                base_url=self.endpoint, version="auto", timeout=self._timeout_seconds
            )
            self._mine.client = client
            with self._lock:
                self._clients.append(client)
        return client
