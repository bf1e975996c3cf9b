"""`bai admin image-prune`: list unused images first, and remove them."""

from __future__ import annotations

import asyncio

from tests.api.cluster.test_image_prunes import DAY, OLD, answer
from tests.api.cluster.test_image_pulls import docker_agent
from tests.testbed.manager import Api

from .conftest import Bai


async def test_unused_images_are_listed_before_they_are_removed(bai: Bai, api: Api) -> None:
    agent = await docker_agent(api, "d1", **{OLD: ""})
    unused = {"image": OLD, "size_bytes": 2**30, "last_used": 1_700_000_000}
    command = ("admin", "image-prune", "--group", "default", "--unused-days", "7")
    listed, item = await asyncio.gather(bai(*command), answer(agent, unused))
    assert (item["is_dry_run"], item["unused_seconds"]) == (True, 7 * DAY)
    assert OLD in listed.stdout
    assert "1g" in listed.stdout
    assert "to remove these images, add --remove" in listed.stderr
    removed, item = await asyncio.gather(
        bai(*command, "--remove", "--json"), answer(agent, {**unused, "is_removed": True})
    )
    assert item["is_dry_run"] is False
    assert [image["is_removed"] for image in removed.document["images"]] == [True]
    refused = await bai(*command, by="user")
    assert refused.code != 0
