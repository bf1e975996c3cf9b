"""Time of a scan of an image registry, and time of a commit compared with `docker commit`.

Prints one JSON object. ``scan_seconds``: first scan of a registry with ``--tags`` different images
(Debian's registry with TLS and a password, manager on SQLite). ``rescan_seconds``: second scan, in
which no tag has changed. ``commit_ratio``: time of a commit of ``--commit-bytes`` as the agent
executes it, without the push, divided by the time of a plain `docker commit` of the same container;
medians of ``--commits`` commits each, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.commits import commit
from bai_services.core.cluster.custom_images import CommitRequest
from bai_services.core.sessions.callbacks import AllowedTargets
from tests.testbed.docker_engine import acquire
from tests.testbed.image_registry import (
    PASSWORD,
    USERNAME,
    TlsRegistry,
    push,
    serving_registry,
)
from tests.testbed.images import base_image
from tests.testbed.manager import Api, MovableClock, make_world, manager_on, serving

REPOSITORIES = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tags", type=int, default=500)
    parser.add_argument("--commits", type=int, default=3, help="commits of each kind; 0: none")
    parser.add_argument("--commit-bytes", type=int, default=10**9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, serving_registry(Path(name) / "registry") as made:
        _fill(made, options.tags)
        result = asyncio.run(_measure(made, Path(name), options.tags))
    figures: dict[str, object] = {"tags": options.tags, **result}
    if options.commits:
        figures |= _commits(options.commits, options.commit_bytes)
    print(json.dumps(figures, indent=2))
    return 0


def _fill(registry: TlsRegistry, tags: int) -> None:
    stored: set[tuple[str, str]] = set()
    with registry.client() as client:
        for number in range(tags):
            labels = {"ai.backend.role": "COMPUTE", "number": str(number)}
            repository = f"team/image{number % REPOSITORIES}"
            push(client, repository, [f"v{number}"], labels, stored=stored)


def _commits(count: int, size: int) -> dict[str, object]:
    """Commit one container both ways, in turn; every commit has the same changes."""
    engine = acquire()
    name = f"bai-bench-{uuid.uuid4().hex[:8]}"
    try:
        labels = ["--label", f"bench={name}"]
        engine.run("run", "--detach", "--name", name, *labels, base_image(engine), "sleep", "inf")
        write = f"head -c {size} /dev/urandom > /changed"
        engine.run("exec", name, "sh", "-c", write)
        plain, ours = [], []
        for _ in range(count):
            plain.append(_seconds(lambda: engine.run("commit", name, name)))
            engine.run("rmi", name)
            ours.append(_seconds(lambda: asyncio.run(_commit(engine.host, name))))
            engine.run("rmi", name)
    finally:
        engine.run("rm", "--force", name)
        engine.release()
    medians = statistics.median(ours), statistics.median(plain)
    return {
        "commit_ratio": round(medians[0] / medians[1], 3),
        "commit_seconds": [round(seconds, 2) for seconds in ours],
        "docker_commit_seconds": [round(seconds, 2) for seconds in plain],
        "commit_bytes": size,
    }


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


async def _commit(host: str, name: str) -> None:
    calls = DockerCalls(host, timeout_seconds=600)
    try:
        request = CommitRequest(name, name, name, f"{name}:latest")
        await commit(calls, {"label": [f"bench={name}"]}, request, lambda *_: None)
    finally:
        calls.close()


async def _measure(registry: TlsRegistry, folder: Path, tags: int) -> dict[str, float]:
    clock = MovableClock()
    settings = {"registry_reach": AllowedTargets.parse("", "127.0.0.0/8")}
    url = f"sqlite+aiosqlite:///{folder}/bai.sqlite"
    async with (
        manager_on(url, folder, clock, **settings) as manager,
        serving(await make_world(manager, clock)) as api,
    ):
        manager.cluster.registry_scans.start_threads()
        admin = await api.client("admin")
        spec = {
            "name": "lab",
            "url": registry.url,
            "username": USERNAME,
            "password": PASSWORD,
            "ca_certificate": registry.certificate,
        }
        await admin.post("/image-registries", spec)
        first = await _scan(api, tags)
        return {"scan_seconds": first, "rescan_seconds": await _scan(api, tags)}


async def _scan(api: Api, tags: int) -> float:
    scans, admin = api.world.manager.cluster.registry_scans, await api.client("admin")
    started = time.perf_counter()
    await admin.post("/image-registries/lab/scan")
    await scans.step()
    await scans.wait()
    seconds = time.perf_counter() - started
    found = await admin.get("/image-registries/lab")
    if found["scan_status"] != "done" or found["scan_checked"] != tags:
        raise SystemExit(f"the scan has failed: {found}")
    return round(seconds, 2)


if __name__ == "__main__":
    sys.exit(main())
