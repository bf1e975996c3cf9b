"""`bai-hub bundle`: wheels and images for an installation without a network."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bai_services.core.errors import Conflict, InvalidRequest, Unavailable

from .folder import sha256_of

CHECKSUMS = "SHA256SUMS"
README = "README.txt"
CHUNK_BYTES = 2**20
_WHEEL = re.compile(r"bai_hub-([^-]+)-.*\.whl")
# A large wheel on a slow network takes minutes.
_PIP_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Bundle:
    """Facts of a written bundle; ``folder`` is its only top-level entry."""

    folder: str
    wheels: int
    images: tuple[str, ...]
    size_bytes: int


def make_bundle(target: Path, wheel: Path, extras: Sequence[str], images: Sequence[str]) -> Bundle:
    """Write a tar file with ``wheel``, all wheels that it requires, and Docker images.

    The wheels are those for the Python version and the platform of this process.

    Raises
    ------
    Conflict
        If ``target`` exists.
    InvalidRequest
        If ``wheel`` is not a wheel of bai-hub.
    Unavailable
        If pip fails, or the Docker engine lacks an image.
    """
    if target.exists():
        raise Conflict(f"{target} exists already")
    version = _version(wheel)
    folder = f"bai-hub-bundle-{version}"
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with tempfile.TemporaryDirectory(prefix="bai-bundle-", dir=target.parent) as name:
            stage = Path(name)
            files = [_save_image(image, stage / "images") for image in images]
            _collect_wheels(wheel, extras, stage / "wheels")
            text = _readme(version, extras, files)
            (stage / README).write_text(text, encoding="utf-8")
            paths = sorted(path for path in stage.rglob("*") if path.is_file())
            sums = [f"{sha256_of(path)}  {path.relative_to(stage)}\n" for path in paths]
            (stage / CHECKSUMS).write_text("".join(sums))
            with tarfile.open(partial, "w") as archive:
                for path in (stage / CHECKSUMS, *paths):
                    archive.add(path, f"{folder}/{path.relative_to(stage)}")
            wheels = len(list((stage / "wheels").iterdir()))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return Bundle(folder, wheels, tuple(images), target.stat().st_size)


def _version(wheel: Path) -> str:
    found = _WHEEL.fullmatch(wheel.name)
    if found is None or not wheel.is_file():
        raise InvalidRequest(f"{wheel} is not a wheel of bai-hub; `make wheel` builds it")
    return found[1]


def _collect_wheels(wheel: Path, extras: Sequence[str], folder: Path) -> None:
    """Write ``wheel`` and its requirements; packages without a wheel are built."""
    requirement = f"bai-hub[{','.join(extras)}] @ {wheel.absolute().as_uri()}"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        + ["--wheel-dir", str(folder), requirement],
        capture_output=True,
        text=True,
        timeout=_PIP_SECONDS,
    )
    if done.returncode != 0:
        raise Unavailable(f"pip could not collect the wheels: {done.stderr.strip()[-2000:]}")


def _save_image(image: str, folder: Path) -> str:
    """Write an image of the Docker engine as `docker save` does; return the name of its file."""
    import docker
    import requests
    from docker.errors import DockerException, ImageNotFound

    folder.mkdir(exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", image).strip("-.") + ".tar"
    if (folder / name).exists():
        raise InvalidRequest(f"two images would have the file {name}; bundle {image} separately")
    try:
        with closing(docker.from_env()) as client, open(folder / name, "wb") as file:
            for chunk in client.images.get(image).save(CHUNK_BYTES, named=image):
                file.write(chunk)
    except ImageNotFound:
        raise Unavailable(f"the Docker engine has no image {image}; docker pull {image}") from None
    except (DockerException, requests.RequestException) as error:
        raise Unavailable(f"the Docker engine does not respond: {error}") from None
    return name


def _readme(version: str, extras: Sequence[str], images: Sequence[str]) -> str:
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    wanted = f"bai-hub[{','.join(extras)}]=={version}"
    lines = [
        f"bai-hub {version} for {python} on {platform.machine()}.",
        "Installation without a network, in this folder:",
        "",
        f"    sha256sum --check --quiet {CHECKSUMS}",
        f"    {python} -m venv /opt/bai-hub",
        f"    /opt/bai-hub/bin/pip install --no-index --find-links wheels '{wanted}'",
        *(f"    docker load --input images/{name}" for name in images),
        "    /opt/bai-hub/bin/bai-hub init /etc/bai-hub --help",
        "",
    ]
    return "\n".join(lines)
