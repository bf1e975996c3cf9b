"""Read the SBOM file of an image, without running the image."""

from __future__ import annotations

import io
import tarfile
import time
from contextlib import closing

import docker

from bai_services.core.cluster.sbom import MAX_SBOM_BYTES, sbom_path
from bai_services.core.errors import NotFound, Unavailable

from .calls import DockerCalls

SBOM_LABEL = "bai.sbom"
# Containers of interrupted reads are removed after this time.
MAX_AGE_SECONDS = 600
NOT_FOUND_STATUS = 404
# Docker pads an archive with one file to a multiple of this size.
ARCHIVE_BLOCK_BYTES = 2 * tarfile.RECORDSIZE


async def read_sbom(calls: DockerCalls, image: str) -> bytes:
    """Return the SBOM of an image: the file whose path is in the image's label.

    Raises
    ------
    NotFound
        If the image does not exist, or has no such file.
    Unavailable
        If the engine does not respond.
    """
    try:
        return await calls.run("change", lambda client: _read(client, image))
    except docker.errors.APIError as error:
        if error.status_code == NOT_FOUND_STATUS:
            raise NotFound(f"image {image} or its SBOM does not exist", image=image) from error
        raise Unavailable(
            f"the Docker engine cannot read the SBOM of image {image}: {error.explanation}"
        ) from error


def _read(client: docker.APIClient, image: str) -> bytes:
    _remove_old(client)
    found = client.inspect_image(image)
    path = sbom_path((found.get("Config") or {}).get("Labels") or {})
    if not path:
        raise NotFound(f"image {image} has no SBOM", image=image)
    # Docker can read files only from a container, not from an image. The container is never
    # started; Docker requires a command if the image has none.
    container = client.create_container(
        found["Id"], command=["sbom"], labels={SBOM_LABEL: "1"}, network_disabled=True
    )["Id"]
    try:
        stream, facts = client.get_archive(container, path)
        # The engine does not remove the container while the archive is being read. Closing the
        # stream closes its connection.
        with closing(stream):
            archive = io.BytesIO()
            for chunk in stream:
                archive.write(chunk)
                size = max(archive.tell() - ARCHIVE_BLOCK_BYTES, int(facts.get("size") or 0))
                if size > MAX_SBOM_BYTES:
                    raise NotFound(f"the SBOM of image {image} is too large", image=image)
        return _first_file(image, archive.getvalue())
    finally:
        client.remove_container(container, force=True, v=True)


def _first_file(image: str, archive: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.next()
        # The path may be a folder or a link.
        content = tar.extractfile(member) if member is not None and member.isreg() else None
        if content is None:
            raise NotFound(f"the SBOM of image {image} is not a regular file", image=image)
        return content.read()


def _remove_old(client: docker.APIClient) -> None:
    for container in client.containers(all=True, filters={"label": SBOM_LABEL}):
        if time.time() - float(container["Created"]) > MAX_AGE_SECONDS:
            client.remove_container(container["Id"], force=True, v=True)
