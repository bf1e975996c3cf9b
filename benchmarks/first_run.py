"""Time from `make run` until the sign-in page responds, in a new clone and after installation.

The first run includes all downloads, so its duration depends on the network and on the caches of
pip and npm.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.hub import ROOT
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

TIMEOUT_SECONDS = 900
STOP_SECONDS = 90


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_run", description=__doc__)
    parser.add_argument("--again", type=int, default=3, help="number of runs after the first run")
    spec = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as folder:
        clone = Path(folder, "bai-hub")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        first = seconds_to_a_page(clone)
        again = sorted(seconds_to_a_page(clone) for _ in range(spec.again))
    figures = {"first_seconds": first, "again_seconds": again[len(again) // 2] if again else None}
    print(json.dumps(figures, indent=2))
    return 0


def seconds_to_a_page(clone: Path) -> float:
    """Return the seconds from `make run` until the sign-in page responds; then stop the demo."""
    port = free_port()
    environ = {
        **os.environ,
        "BAI_PORT": str(port),
        "BAI_ENGINE": "process",
        "BAI_DEMO_PASSWORD": f"Demo-{secrets.token_hex(8)}-1",
    }
    began = time.perf_counter()
    with running_demo(clone, environ) as process:
        _wait_for_page(process, f"http://127.0.0.1:{port}/hub/login")
        return round(time.perf_counter() - began, 2)


@contextmanager
def running_demo(clone: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run `make run` and yield its process; send SIGINT at the end of the ``with`` block."""
    process = subprocess.Popen(
        ["make", "run"],
        cwd=clone,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(STOP_SECONDS)


def _wait_for_page(process: subprocess.Popen[bytes], url: str) -> None:
    with httpx.Client(trust_env=False, timeout=5) as client:

        def page_responds() -> bool:
            if process.poll() is not None:
                raise SystemExit(f"make run ended with {process.returncode}")
            with suppress(httpx.TransportError):
                return client.get(url).status_code == httpx.codes.OK
            return False

        wait_until(page_responds, TIMEOUT_SECONDS, url)


if __name__ == "__main__":
    sys.exit(main())
