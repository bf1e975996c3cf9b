"""`bai image sbom`: the packages of an image."""

from __future__ import annotations

import asyncio
import json

from bai_services.core.cluster.sbom import pack_sbom
from tests.api.cluster.test_image_pulls import docker_agent
from tests.api.cluster.test_image_sboms import IMAGE, LABELS, answer
from tests.core.cluster.test_sbom import CYCLONEDX
from tests.testbed.manager import Api

from .conftest import Bai


async def test_packages_are_listed_searched_and_printed_as_sbom(bai: Bai, api: Api) -> None:
    admin = await api.client("admin")
    labels = {**LABELS, "ai.backend.customized-image.owner": "user"}
    await admin.post("/images", {"name": IMAGE, "labels": labels})
    agent = await docker_agent(api, "d1", **{IMAGE: ""})
    packed = pack_sbom(json.dumps(CYCLONEDX).encode())
    command = ("image", "sbom", IMAGE)
    listed, _ = await asyncio.gather(bai(*command, by="user"), answer(agent, sbom=packed))
    assert "curl" in listed.stdout and "7.88.1-10" in listed.stdout
    assert "the image from which this custom image was made" in listed.stderr
    found, _ = await asyncio.gather(
        bai(*command, "--package", "TOOL", "--json", by="user"), answer(agent, sbom=packed)
    )
    assert [item["name"] for item in found.document["packages"]] == ["toolz"]
    whole, _ = await asyncio.gather(
        bai(*command, "--document", by="user"), answer(agent, sbom=packed)
    )
    assert json.loads(whole.stdout) == CYCLONEDX
