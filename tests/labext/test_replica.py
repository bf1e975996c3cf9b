"""The main process of a replica, with a real server behind it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

SECRET = {"Authorization": "token replica-secret"}


@contextmanager
def replica(
    folder: Path, command: str, engine: str = "process", **more: str
) -> Iterator[tuple[str, int]]:
    """Yield the URL of a replica, without a path, and the ``BAI_SERVICE_PORT`` passed to it.

    With the engine ``process``, the replica uses a free port instead of ``BAI_SERVICE_PORT``.
    """
    url, port = f"http://127.0.0.1:{free_port()}", free_port()
    environ = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "BAI_STARTUP_COMMAND": command,
        "BAI_SERVICE_PORT": str(port),
        "BAI_REPLICA_SECRET": "replica-secret",
        "BAI_SESSION_ENGINE": engine,
        "JUPYTERHUB_SERVICE_URL": f"{url}/user/ann/llm/",
        "JUPYTERHUB_BASE_URL": "/",
        **more,
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "bai_labext.replica"], env=environ, cwd=folder
    )
    try:
        wait_until(lambda: is_up(url), 20, "the replica")
        yield url, port
    finally:
        process.terminate()
        assert process.wait(20) is not None


def test_shutdown_with_an_open_connection_logs_nothing(tmp_path: Path) -> None:
    """The log of a failed replica must end with the output of the model's server."""
    port = free_port()
    program = f"""
import gc, os, socket
from bai_labext.replica import ForwardServer
server = ForwardServer(("127.0.0.1", {port}), 1, "", "/", 1)
server.start()
open_connection = socket.create_connection(("127.0.0.1", {port}))
open_connection.sendall(b"GET / HTTP/1.1")
server.shutdown()
server.server_close()
del server
gc.collect()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/user/ann/llm/api").status_code == 200
    except httpx.TransportError:
        return False


def serves(url: str) -> bool:
    try:
        return httpx.get(f"{url}/f.txt", headers=SECRET).status_code == 200
    except httpx.TransportError:
        return False


def test_only_requests_with_the_secret_reach_the_server(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x" * 200_000)
    command = "exec python3 -m http.server --bind 127.0.0.1 $BAI_SERVICE_PORT"
    with replica(tmp_path, command) as (url, _):
        wait_until(lambda: serves(url), 20, "the server of the model")
        with httpx.Client(base_url=url, headers=SECRET) as gateway:
            assert [len(gateway.get("/f.txt").content) for _ in range(3)] == [200_000] * 3
        for headers in (
            {},
            {"Authorization": "token wrong"},
            {"Authorization": "token"},
            {"Authorization": "Bearer replica-secret"},
            [("Authorization", "token replica-secret"), ("Authorization", "token wrong")],
            # Send the headers that the Hub's proxy adds.
            {**SECRET, "X-Forwarded-For": "192.0.2.1", "X-Forwarded-Port": "80"},
            {**SECRET, "X-Forwarded-Host": "hub"},
        ):
            response = httpx.get(f"{url}/f.txt", headers=headers)
            assert (response.status_code, response.headers["Location"]) == (302, "/hub/home")


def test_server_has_its_own_port_and_does_not_see_the_secret(tmp_path: Path) -> None:
    command = (
        'echo "$BAI_SERVICE_PORT $PORT [$BAI_REPLICA_SECRET]" > facts; '
        "exec python3 -m http.server --bind 127.0.0.1 $PORT"
    )
    with replica(tmp_path, command, "docker") as (_, port):
        wait_until((tmp_path / "facts").exists, 20, "the command")
        wait_until(lambda: (tmp_path / "facts").read_text(), 20, "the facts")
        assert (tmp_path / "facts").read_text() == f"{port} {port} []\n"


def test_metrics_may_have_another_port(tmp_path: Path) -> None:
    serve = "python3 -m http.server --bind 127.0.0.1"
    for name in ("service", "metrics"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.txt").write_text(name)
    command = (
        f"{serve} --directory metrics $BAI_METRICS_PORT & "
        f"exec {serve} --directory service $BAI_SERVICE_PORT"
    )
    with replica(tmp_path, command, BAI_METRICS_PORT="8002") as (url, _):
        wait_until(lambda: serves(url), 20, "the server of the model")
        wait_until(lambda: metrics_of(url) == "metrics", 20, "the metrics")
        assert httpx.get(f"{url}/f.txt", headers=SECRET).text == "service"


def metrics_of(url: str) -> str:
    return httpx.get(f"{url}/f.txt", headers={**SECRET, "X-Bai-Metrics": "1"}).text


def test_missing_server_is_reported_and_idle_connections_do_not_block(tmp_path: Path) -> None:
    with replica(tmp_path, "sleep 60") as (url, _):
        address = ("127.0.0.1", httpx.URL(url).port or 0)
        idle = [socket.create_connection(address) for _ in range(50)]
        response = httpx.get(f"{url}/v1/models", headers=SECRET)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
        for connection in idle:
            connection.close()
