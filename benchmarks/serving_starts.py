"""Delays of serving in a running Hub: scale-up, start from zero, revocation, killed gateway.

The start time of the replica's session is subtracted from the first two: the time from its creation
until its server listens.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import httpx

from bai_services.system.supervisor import QUICK_SECONDS
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

from .start import demo

NAME = "bench"
WAIT_SECONDS = 60
REVOCATIONS = 5
KILLS = 5
BURST = 6
SERVER = """
import http.server, json, os, socketserver, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(0.5)
        body = json.dumps({"listening_at": began}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
server = Server(("127.0.0.1", int(os.environ["PORT"])), Handler)
began = time.time()
server.serve_forever()
"""
ENDPOINT = {
    "name": NAME,
    "settings": {
        "variant": "cmd",
        "command": f"exec python3 -c {shlex.quote(SERVER)}",
        "health": {"path": "/"},
        "request": {"resources": {"cpu": "1", "mem": "256m"}},
    },
    "scaling": {
        "min_replicas": 0, "max_replicas": 2, "target": 1, "utilization": 1,
        "stable_seconds": 10, "panic_seconds": 2, "idle_seconds": 10,
    },
    "queue_seconds": WAIT_SECONDS,
}  # fmt: skip


class Endpoint:
    """The endpoint of this benchmark in a running Hub."""

    def __init__(self, hub: RunningHub, rest: httpx.Client) -> None:
        self._rest = rest
        # One for all threads: creating a client takes much CPU time.
        self._calls = httpx.Client(
            base_url=f"{hub.url}/services/bai-serve/{NAME}", timeout=WAIT_SECONDS
        )
        rest.post("/endpoints", json=ENDPOINT).raise_for_status()
        self.token = self.create_token("bench")

    def create_token(self, name: str) -> str:
        response = self._rest.post(f"/endpoints/{NAME}/tokens", json={"name": name})
        return str(response.raise_for_status().json()["token"])

    def delete_token(self, name: str) -> None:
        self._rest.delete(f"/endpoints/{NAME}/tokens/{name}").raise_for_status()

    def call(self, path: str, token: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return self._calls.get(path, headers=headers)

    def is_served(self) -> bool:
        """Return whether a request succeeds now."""
        try:
            return self.call("/").is_success
        except httpx.HTTPError:
            return False

    def replicas(self) -> list[dict[str, Any]]:
        found = self._rest.get(f"/endpoints/{NAME}/replicas").raise_for_status().json()["items"]
        return [each for each in found if each["phase"] != "ended"]

    def describe(self) -> str:
        """Return the state of the endpoint, for the message of a failure."""
        shown = self._rest.get(f"/endpoints/{NAME}").json()
        return json.dumps({"endpoint": shown, "replicas": self.replicas()})

    def wait_for_token(self, token: str) -> None:
        wait_until(lambda: self.call("/", token).status_code != 401, 10, "the token to be valid")


def from_zero_seconds(endpoint: Endpoint) -> float:
    """Return the delay of a request that starts the first replica."""
    wait_until(lambda: not endpoint.replicas(), WAIT_SECONDS, "no replica")
    began = time.time()
    document = endpoint.call("/").raise_for_status().json()
    total = time.time() - began
    return total - _own_start(endpoint, document["listening_at"])


def scale_up_seconds(endpoint: Endpoint) -> float:
    """Return the delay from a burst until the second replica serves."""
    first = endpoint.call("/").raise_for_status().json()
    with _burst(endpoint):
        began = time.time()
        deadline = began + WAIT_SECONDS
        while time.time() < deadline:
            document = endpoint.call("/").raise_for_status().json()
            if document != first:
                return time.time() - began - _own_start(endpoint, document["listening_at"])
    raise TimeoutError(f"there is no second replica: {endpoint.describe()}")


@contextmanager
def _burst(endpoint: Endpoint) -> Iterator[None]:
    """Keep requests running."""
    stopping = threading.Event()

    def load() -> None:
        while not stopping.is_set():
            endpoint.call("/slow")

    threads = [threading.Thread(target=load) for _ in range(BURST)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _own_start(endpoint: Endpoint, listening_at: float) -> float:
    """Return the seconds from the creation of the newest replica until its server listened."""
    created = max(datetime.fromisoformat(each["created_at"]) for each in endpoint.replicas())
    return listening_at - created.timestamp()


def revoke_seconds(endpoint: Endpoint) -> float:
    """Return the longest time from the deletion of a token until requests with it are refused."""
    seconds = []
    for number in range(REVOCATIONS):
        name = f"revoked-{number}"
        token = endpoint.create_token(name)
        endpoint.wait_for_token(token)
        endpoint.delete_token(name)
        began = time.perf_counter()
        wait_until(lambda token=token: endpoint.call("/", token).status_code == 401, 30, "401")
        seconds.append(time.perf_counter() - began)
    return max(seconds)


def gateway_back_seconds(hub: RunningHub, endpoint: Endpoint) -> float:
    """Return the longest time from a kill of the gateway (SIGKILL) until it serves a request."""
    seconds = []
    for _ in range(KILLS):
        # The supervisor gives up a gateway that is killed soon after its start three times.
        time.sleep(QUICK_SECONDS)
        endpoint.call("/").raise_for_status()
        began = time.perf_counter()
        hub.kill("gateway")
        wait_until(endpoint.is_served, WAIT_SECONDS, "a response after the kill of the gateway")
        seconds.append(time.perf_counter() - began)
    return max(seconds)


def measure(gateway_engine: str = "builtin", runs: int = 3) -> dict[str, float]:
    """Measure with the process engine; scale-up and start from zero are medians of all runs."""
    with demo("process", {"BAI_GATEWAY_ENGINE": gateway_engine}) as hub, hub.rest("user") as rest:
        endpoint = Endpoint(hub, rest)
        endpoint.wait_for_token(endpoint.token)
        zero, up = [], []
        for _ in range(runs):
            zero.append(from_zero_seconds(endpoint))
            up.append(scale_up_seconds(endpoint))
        return {
            "from_zero_seconds": round(statistics.median(zero), 2),
            "scale_up_seconds": round(statistics.median(up), 2),
            "revoke_seconds": round(revoke_seconds(endpoint), 2),
            "gateway_back_seconds": round(gateway_back_seconds(hub, endpoint), 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving_starts", description=__doc__
    )
    parser.add_argument("--gateway", choices=("builtin", "haproxy"), default="builtin")
    parser.add_argument("--runs", type=int, default=3)
    spec = parser.parse_args()
    print(json.dumps(measure(spec.gateway, spec.runs), indent=2))


if __name__ == "__main__":
    main()
