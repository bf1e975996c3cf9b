"""Docker's blocking clients, one per thread and engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import docker
import requests
import urllib3
from docker.tls import TLSConfig
from paramiko import SSHException

T = TypeVar("T")


class EngineUnavailable(Exception):
    """The engine cannot be reached or has not responded in time."""


class _Client(docker.APIClient):  # type: ignore[misc]  # docker has no types
    def merge_environment_settings(
        self, url: str, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> Any:
        """Return the settings of a request.

        `requests` would replace the certificate authority of the client by the one that
        ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE`` names, unless the request itself has one.
        """
        own = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, own, cert)


class DockerClients:
    """Call engines with the client of the calling thread: a client is not thread-safe.

    ``tls_folder`` contains ``ca.pem``, ``cert.pem`` and ``key.pem`` for engines on TCP.
    """

    def __init__(self, timeout_seconds: float, tls_folder: str = "") -> None:
        self._timeout_seconds = timeout_seconds
        self._tls_folder = tls_folder
        self._of_thread = threading.local()
        self._all: list[docker.APIClient] = []
        self._lock = threading.Lock()

    def call(self, endpoint: str, call: Callable[[docker.APIClient], T]) -> T:
        """Run ``call`` with this thread's client for the engine, and return its result.

        Raises
        ------
        EngineUnavailable
            If the engine does not respond. Errors that it reports (``docker.errors.APIError``)
            are passed through.
        """
        try:
            return call(self._client(endpoint))
        except docker.errors.APIError:
            raise
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            SSHException,
            OSError,
        ) as error:
            raise EngineUnavailable(endpoint) from error

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._all:
                client.close()

    def _client(self, endpoint: str) -> docker.APIClient:
        clients: dict[str, Any] = self._of_thread.__dict__.setdefault("by_endpoint", {})
        if endpoint not in clients:
            clients[endpoint] = _Client(
                base_url=endpoint,
                version="auto",
                timeout=self._timeout_seconds,
                tls=self._tls() if endpoint.startswith(("tcp://", "https://")) else False,
            )
            with self._lock:
                self._all.append(clients[endpoint])
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
