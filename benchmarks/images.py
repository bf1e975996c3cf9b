"""Time of a scan of an image registry, from the request to the last stored image.

Prints one JSON object. ``scan_seconds``: first scan of a registry with ``--tags`` different images
(Debian's registry with TLS and a password, manager on SQLite). ``rescan_seconds``: second scan, in
which no tag has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from bai_services.core.sessions.callbacks import AllowedTargets
from tests.testbed.image_registry import (
    PASSWORD,
    USERNAME,
    TlsRegistry,
    push,
    serving_registry,
)
from tests.testbed.manager import Api, MovableClock, make_world, manager_on, serving

REPOSITORIES = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tags", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, serving_registry(Path(name) / "registry") as made:
        _fill(made, options.tags)
        result = asyncio.run(_measure(made, Path(name), options.tags))
    print(json.dumps({"tags": options.tags, **result}, indent=2))
    return 0


def _fill(registry: TlsRegistry, tags: int) -> None:
    stored: set[tuple[str, str]] = set()
    with registry.client() as client:
        for number in range(tags):
            labels = {"ai.backend.role": "COMPUTE", "number": str(number)}
            repository = f"team/image{number % REPOSITORIES}"
            push(client, repository, [f"v{number}"], labels, stored=stored)


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
