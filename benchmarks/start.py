"""Time from POST /sessions to a usable JupyterLab, compared with `docker run` of the same image.

The two kinds of starts alternate on the same machine. Results are medians. JupyterLab is usable
when GET /lab and the kernels API return 200. Then the process engine is compared in the same way
with JupyterLab as a plain process. Finally, the starts per second with a no-op engine are compared
with those of a Hub without bai-hub. `--only-rate` measures only the starts per second and needs no
Docker.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.hub import ROOT, RunningHub
from tests.testbed import ComponentMissing
from tests.testbed.docker_engine import DockerEngine, acquire
from tests.testbed.images import session_image
from tests.testbed.ports import free_port

from .start_rate import rates

EXIT_MISSING = 6
POLL_SECONDS = 0.005
TIMEOUT_SECONDS = 120
RESOURCES = {"cpu": "1", "mem": "1g"}


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    spec = _parser().parse_args()
    if spec.only_rate:
        print(json.dumps(rates(spec.starts), indent=2))
        return 0
    try:
        engine = acquire()
    except ComponentMissing as reason:
        return _missing(reason)
    try:
        image = session_image(engine)
        figures = on_docker(engine, image, spec.runs)
    except ComponentMissing as reason:
        return _missing(reason)
    finally:
        engine.release()
    if not spec.only_docker:
        figures |= on_processes(spec.runs)
        figures |= rates(spec.starts)
    print(json.dumps(figures, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="starts of each kind")
    parser.add_argument("--starts", type=int, default=300, help="sessions for starts_per_second")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-docker", action="store_true", help="measure only the Docker part")
    only.add_argument("--only-rate", action="store_true", help="measure only starts per second")
    return parser


def _missing(reason: object) -> int:
    print(f"Docker is missing: nothing was measured ({reason})", file=sys.stderr)
    return EXIT_MISSING


def on_docker(engine: DockerEngine, image: str, runs: int) -> dict[str, Any]:
    environment = {"DOCKER_HOST": engine.host, "BAI_IMAGE": image}
    with demo("docker", environment) as hub:
        ours, bare = in_turns(
            runs, lambda: session_seconds(hub), lambda: bare_container_seconds(engine, image)
        )
    return {
        "seconds": round(statistics.median(ours), 3),
        "bare_seconds": round(statistics.median(bare), 3),
        "added_seconds": round(statistics.median(ours) - statistics.median(bare), 3),
        "runs": runs,
    }


def on_processes(runs: int) -> dict[str, Any]:
    with demo("process") as hub:
        ours, bare = in_turns(runs, lambda: session_seconds(hub), bare_process_seconds)
    return {
        "process_seconds": round(statistics.median(ours), 3),
        "bare_process_seconds": round(statistics.median(bare), 3),
    }


def in_turns(
    runs: int, one: Callable[[], float], other: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Measure both alternately; return the seconds of each, without the first run (warm-up)."""
    measured = [(one(), other()) for _ in range(runs + 1)][1:]
    return [pair[0] for pair in measured], [pair[1] for pair in measured]


@contextmanager
def demo(engine: str, environment: dict[str, str] | None = None) -> Iterator[RunningHub]:
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as home:
        hub = RunningHub(Path(home) / "home", engine, environment)
        try:
            yield hub.start()
        finally:
            hub.stop()


def session_seconds(hub: RunningHub) -> float:
    """Start and stop a session.

    Return the seconds from the request until JupyterLab is usable through the proxy.
    """
    with hub.rest("user") as rest:
        body = {"name": f"bench-{secrets.token_hex(4)}", "resources": RESOURCES}
        began = time.perf_counter()
        made = rest.post("/sessions", json=body).raise_for_status().json()
        path = f"/sessions/{made['id']}"
        session = wait_for_status(rest, path, "RUNNING")
        token = rest.headers["Authorization"]
        wait_until_usable(hub.url + session["url"], token)
        seconds = time.perf_counter() - began
        rest.delete(path).raise_for_status()
        wait_for_status(rest, path, "TERMINATED")
    return seconds


def wait_for_status(rest: httpx.Client, path: str, status: str) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        answer = rest.get(path, params={"wait": status, "timeout": "10"})
        session: dict[str, Any] = answer.raise_for_status().json()
        if session["status"] == status:
            return session
        if session["status"] in ("ERROR", "CANCELLED", "TERMINATED"):
            break
    raise RuntimeError(f"the session is {session['status']}: {session['status_info']}")


def bare_container_seconds(engine: DockerEngine, image: str) -> float:
    port, token = free_port(), secrets.token_hex(16)
    command = ["run", "--detach", "--publish", f"127.0.0.1:{port}:8888"]
    command += ["--env", f"JUPYTER_TOKEN={token}", image]
    began = time.perf_counter()
    container = engine.run(*command, "jupyter", "lab", "--ip=0.0.0.0", "--port=8888")
    try:
        wait_until_usable(f"http://127.0.0.1:{port}/", f"token {token}")
        return time.perf_counter() - began
    finally:
        engine.run("rm", "--force", "--volumes", container)


def bare_process_seconds() -> float:
    port, token = free_port(), secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as home:
        config = ROOT / "bai_labext" / "config"
        environ = {**os.environ, "HOME": home, "JUPYTER_CONFIG_PATH": str(config)}
        began = time.perf_counter()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
                *(f"--port={port}", f"--IdentityProvider.token={token}"),
            ],
            env=environ,
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_usable(f"http://127.0.0.1:{port}/", f"token {token}")
            return time.perf_counter() - began
        finally:
            process.terminate()
            process.wait(30)


def wait_until_usable(url: str, authorization: str) -> None:
    """Wait until /lab and the kernels API return 200."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    headers = {"Authorization": authorization}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
        while time.monotonic() < deadline:
            try:
                if client.get("lab").status_code == 200 == client.get("api/kernels").status_code:
                    return
            except httpx.TransportError:
                pass
            time.sleep(POLL_SECONDS)
    raise RuntimeError(f"{url} cannot be used after {TIMEOUT_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
