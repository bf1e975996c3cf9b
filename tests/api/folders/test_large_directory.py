"""Pages of a directory with 100,000 entries over REST."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bai_services.client import Client
from tests.testbed.manager import Api

ENTRIES = 100_000


@pytest.fixture
async def user(api: Api) -> Client:
    await api.world.manager.folders.vfolders.start()
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


def fill(place: Path) -> None:
    place.mkdir()
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(ENTRIES):
        os.mknod(f"{number:06}", 0o600, dir_fd=directory)
    os.close(directory)


async def test_directory_with_100000_entries_is_listed_in_pages(api: Api, user: Client) -> None:
    (root,) = api.world.manager.settings.storage_root.glob("user/*/[!.]*")
    await asyncio.to_thread(fill, root / "many")

    async def page(**query: object) -> tuple[list[str], int]:
        found = await user.get("/vfolders/data/files", path="many", **query)
        return [entry["name"] for entry in found["items"]], found["total"]

    assert await page(limit=3) == (["000000", "000001", "000002"], ENTRIES)
    assert await page(limit=2, offset=ENTRIES - 1) == (["099999"], ENTRIES)
    assert await page(limit=2, sort="-name") == (["099999", "099998"], ENTRIES)
    assert await page(limit=2, name__contains="0999") == (["000999", "009990"], 120)
    (root / "many/100000").touch()
    assert await page(limit=1, sort="-name") == (["100000"], ENTRIES + 1)
