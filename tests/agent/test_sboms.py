"""SBOM files read from images of a real Docker engine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator, Iterator

import pytest

from bai_services.agent.docker.calls import DockerCalls
from bai_services.agent.docker.sboms import read_sbom
from bai_services.core.cluster.sbom import MAX_SBOM_BYTES
from bai_services.core.errors import NotFound
from tests.testbed.docker_engine import DockerEngine

pytestmark = pytest.mark.docker

NAME = "bai-testbed-sbom:1"
CONTENT = b'{"bomFormat": "CycloneDX"}'


@pytest.fixture
async def calls(docker_engine: DockerEngine) -> AsyncIterator[DockerCalls]:
    made = DockerCalls(docker_engine.host, 60)
    yield made
    made.close()


@pytest.fixture(scope="module")
def image(docker_engine: DockerEngine) -> Iterator[str]:
    """An image with a file, a link to it, a folder and a large file; it has no command."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in (
            ("sbom/file.json", CONTENT),
            ("sbom/large.json", bytes(MAX_SBOM_BYTES + 1)),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("sbom/link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/shadow"
        tar.addfile(link)
    docker_engine.client.api.import_image_from_data(
        packed.getvalue(), repository="bai-testbed-sbom", tag="1"
    )
    yield NAME
    docker_engine.run("rmi", "--force", NAME)


def labelled(engine: DockerEngine, image: str, path: str) -> str:
    """Return an image with a path of an SBOM in its label."""
    api = engine.client.api
    container = api.create_container(image, command=["x"])["Id"]
    try:
        changes = [f'LABEL org.bai.sbom="{path}"']
        api.commit(container, repository="bai-testbed-sbom", tag="labelled", changes=changes)
    finally:
        api.remove_container(container)
    return "bai-testbed-sbom:labelled"


async def test_the_file_of_the_label_is_read_without_a_container_that_remains(
    docker_engine: DockerEngine, calls: DockerCalls, image: str
) -> None:
    name = labelled(docker_engine, image, "/sbom/file.json")
    assert await read_sbom(calls, name) == CONTENT
    for path, reason in (
        ("/sbom/missing.json", "does not exist"),
        ("/sbom/link.json", "not a regular file"),
        ("/sbom/large.json", "too large"),
        ("/sbom", "too large|not a regular file"),
        ("../sbom/file.json", "has no SBOM"),
    ):
        with pytest.raises(NotFound, match=reason):
            await read_sbom(calls, labelled(docker_engine, image, path))
    with pytest.raises(NotFound, match="does not exist"):
        await read_sbom(calls, "bai-testbed-sbom:unknown")
    docker_engine.run("rmi", "--force", name)
    filters = {"label": "bai.sbom"}
    assert docker_engine.client.api.containers(all=True, filters=filters) == []
