"""SBOMs of images over REST, read by agents."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bai_services.core.cluster.sbom import SBOM_LABEL, pack_sbom
from bai_services.core.errors import Conflict, InvalidRequest, NotFound, Unavailable
from tests.api.cluster.test_image_pulls import docker_agent
from tests.core.cluster.test_sbom import CYCLONEDX
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

IMAGE = "registry.example.org/team/py:1"
LABELS = {SBOM_LABEL: "/usr/share/sbom/image.cdx.json"}


async def answer(agent: FakeAgent, **report: Any) -> dict[str, Any]:
    """As an agent, receive a request to read an SBOM and report the result; return the request."""
    (item,) = [each for each in await agent.work(20) if each["kind"] == "sbom"]
    body = {"work_id": item["id"], "kind": "sbom", "state": "done", **report}
    await agent.client.post(f"/agents/{agent.id}/reports", body)
    return item


@pytest.mark.both_databases
async def test_an_agent_with_the_image_reads_its_sbom(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    await admin.post("/images", {"name": IMAGE, "labels": LABELS, "digest": "sha256:new"})
    # Agents without the image, or with an earlier version of it, do not get the request.
    await docker_agent(api, "d0", other="")
    await docker_agent(api, "d1", **{IMAGE: "sha256:old"})
    agent = await docker_agent(api, "d2", **{IMAGE: "sha256:new"})
    packed = pack_sbom(json.dumps(CYCLONEDX).encode())
    # Two users read at the same time; each of them gets a response.
    first, second, item, _ = await asyncio.gather(
        user.get("/images/registry.example.org%2Fteam%2Fpy:1/sbom"),
        admin.get("/images/registry.example.org%2Fteam%2Fpy:1/sbom"),
        answer(agent, sbom=packed),
        answer(agent, sbom=packed),
    )
    assert item["image"] == IMAGE
    assert first == second
    assert (first["image"], first["agent_id"], first["format"]) == (IMAGE, "d2", "CycloneDX")
    assert {"name": "toolz", "version": "1.0.0", "kind": "pypi"} in first["packages"]
    assert first["document"] == CYCLONEDX
    assert await agent.work() == []


async def test_the_reason_is_shown_if_there_is_no_sbom(api: Api) -> None:
    admin, path = await api.client("admin"), f"/images/{IMAGE.replace('/', '%2F')}/sbom"
    image = await admin.post("/images", {"name": IMAGE, "labels": {}})
    with pytest.raises(NotFound, match="has no SBOM"):
        await admin.get(path)
    await admin.patch(f"/images/{image['id']}", {"labels": LABELS})
    with pytest.raises(Conflict, match="no machine in operation has image"):
        await admin.get(path)
    agent = await docker_agent(api, "d1", **{IMAGE: ""})
    failed = {"state": "failed", "error": {"message": "its SBOM is not a regular file"}}
    for report, error, reason in (
        (failed, NotFound, "is not a regular file"),
        ({"sbom": "forged"}, InvalidRequest, "malformed"),
        ({}, NotFound, "cannot be read"),
    ):
        found, _ = await asyncio.gather(
            admin.get(path), answer(agent, **report), return_exceptions=True
        )
        assert isinstance(found, error)
        assert reason in str(found)
    api.world.manager.cluster.image_sboms.report_seconds = 0.1
    with pytest.raises(Unavailable, match="d1 did not return the SBOM"):
        await admin.get(path)
    # The request is not repeated, because no user waits for the response.
    assert await agent.work() == []
