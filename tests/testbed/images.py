"""The session images of this working tree, built if the engine does not have them.

``python -m tests.testbed.images`` builds the session image in the engine of the tests and prints
its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed import ComponentMissing, cache_dir
from tests.testbed.docker_engine import DockerEngine, acquire

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "images" / "session" / "build"
RUNTIME = ROOT / "images" / "runtime" / "build"
MINIMAL = ROOT / "images" / "minimal" / "build"
BASE = "bai-testbed-base:bookworm"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
NAME = "bai-session"
# The uid of the user in the image. Kernels sign in to each other by SSH as this user.
SSH_UID = 1500
_SSH = f"""\
ARG BASE
FROM ${{BASE}}
RUN apt-get update \\
    && apt-get install -y --no-install-recommends openssh-client openssh-server \\
    && apt-get clean && rm -rf /var/lib/apt/lists/* \\
    && useradd --uid {SSH_UID} --home-dir /home/work --shell /bin/bash work
"""
# Adds Open MPI and its Python bindings to an image of this working tree.
_MPI = """\
ARG BASE
FROM ${BASE}
USER root
RUN apt-get update \\
    && apt-get install -y --no-install-recommends openmpi-bin python3-mpi4py \\
    && apt-get clean && rm -rf /var/lib/apt/lists/*
"""


def has_image(engine: DockerEngine, name: str) -> bool:
    from docker.errors import ImageNotFound

    try:
        engine.client.images.get(name)
    except ImageNotFound:
        return False
    return True


def base_image(engine: DockerEngine) -> str:
    """Return the name of a base image.

    By default, the image is built once with debootstrap, so it needs no registry.
    ``BAI_TESTBED_BASE`` names another image, which the engine has or can pull.

    Raises
    ------
    ComponentMissing
        If the image cannot be built.
    """
    chosen = os.environ.get("BAI_TESTBED_BASE")
    if chosen:
        return chosen
    if not has_image(engine, BASE):
        with open(base_archive(), "rb") as archive:
            repository, _, tag = BASE.partition(":")
            engine.client.api.import_image_from_data(
                archive, repository=repository, tag=tag, changes=['CMD ["bash"]']
            )
    return BASE


def ssh_image(engine: DockerEngine) -> str:
    """Return the name of an image that adds an SSH client, server and user to ``base_image``.

    Raises
    ------
    ComponentMissing
        If the image cannot be built.
    """
    with _build_lock("ssh"):
        return _derived(engine, "bai-testbed-ssh", base_image(engine), _SSH)


def mpi_image(engine: DockerEngine) -> str:
    """Return the name of an image that adds Open MPI to ``minimal_image``.

    Raises
    ------
    ComponentMissing
        If the image cannot be built.
    """
    minimal = minimal_image(engine)
    with _build_lock("mpi"):
        return _derived(engine, "bai-testbed-mpi", minimal, _MPI)


def mirror_image(engine: DockerEngine) -> str:
    """Return the name of an image that adds this machine's CA certificates to ``base_image``.

    With `mirror_variables`, pip can reach the package index of this machine in it. The image stays
    in the engine of the tests.
    """
    base = base_image(engine)
    certificates = CA_BUNDLE.read_bytes() if CA_BUNDLE.is_file() else b""
    digest = hashlib.sha256(base.encode() + certificates).hexdigest()[:12]
    name = f"bai-testbed-mirror:{digest}"
    if certificates and not has_image(engine, name):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            dockerfile = f"FROM {base}\nCOPY ca.crt {CA_BUNDLE}\n".encode()
            for file, content in (("Dockerfile", dockerfile), ("ca.crt", certificates)):
                info = tarfile.TarInfo(file)
                info.size, info.mode = len(content), 0o644
                tar.addfile(info, io.BytesIO(content))
        packed.seek(0)
        engine.client.images.build(fileobj=packed, custom_context=True, tag=name, rm=True)
    return name if certificates else base


def mirror_variables() -> str:
    """Return the variables with which pip reaches the package index of this machine."""
    index = os.environ.get("PIP_INDEX_URL", "")
    variables = {"PIP_INDEX_URL": index, "PIP_CERT": str(CA_BUNDLE) if CA_BUNDLE.is_file() else ""}
    return " ".join(f"{name}={value}" for name, value in variables.items() if value)


@contextmanager
def _build_lock(name: str) -> Iterator[None]:
    with open(cache_dir() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _derived(engine: DockerEngine, repository: str, base: str, dockerfile: str) -> str:
    """Return the name of the image that a Dockerfile makes from ``base``; build it if needed."""
    name = f"{repository}:{hashlib.sha256((base + dockerfile).encode()).hexdigest()[:12]}"
    if has_image(engine, name):
        return name
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(dockerfile)
        options = ["--network", "host", "--build-arg", f"BASE={base}", "--tag", name]
        environment = {**os.environ, "DOCKER_HOST": engine.host, "DOCKER_BUILDKIT": "0"}
        command = ["docker", "build", *options, folder]
        built = subprocess.run(command, capture_output=True, text=True, env=environment)
    if built.returncode:
        text = (built.stdout + built.stderr)[-3000:]
        raise ComponentMissing(f"the image {name} could not be built:\n{text}")
    return name


def base_archive() -> Path:
    """Return a tar archive of a Debian root with Python, which debootstrap builds once.

    Raises
    ------
    ComponentMissing
        If debootstrap is missing or fails.
    """
    archive = cache_dir() / "bookworm.tar"
    with open(cache_dir() / "bookworm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _build_base_archive(archive)
    return archive


def _build_base_archive(archive: Path) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise ComponentMissing("a base image requires debootstrap and root, or BAI_TESTBED_BASE")
    packages = "python3,python3-venv,ca-certificates"
    with tempfile.TemporaryDirectory(dir=cache_dir()) as folder:
        root = Path(folder) / "root"
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm"]
        made = subprocess.run([*command, str(root)], capture_output=True, text=True)
        if made.returncode:
            raise ComponentMissing(f"debootstrap failed: {(made.stdout + made.stderr)[-2000:]}")
        shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
        unfinished = archive.with_suffix(".part")
        subprocess.run(["tar", "-C", str(root), "-cf", str(unfinished), "."], check=True)
        unfinished.rename(archive)


def session_image(engine: DockerEngine) -> str:
    """Return the name of this working tree's session image; build it if it does not exist.

    The tag is a hash of the image's sources, so an outdated image is never tested. The image also
    gets the tag ``latest``.

    Raises
    ------
    ComponentMissing
        If the image cannot be built.
    """
    return _built(engine, BUILD, NAME)


def minimal_image(engine: DockerEngine) -> str:
    """Like `session_image`, return the name of this working tree's image without apps."""
    return _built(engine, MINIMAL, "bai-minimal")


def cuda_image(engine: DockerEngine) -> str:
    """Return the name of the minimal image built with ``--cuda`` on the tests' base image."""
    return _built(engine, MINIMAL, "bai-cuda", "--cuda", "12.6.3")


def runtime_image(engine: DockerEngine) -> str:
    """Return the name of the runtime image of this working tree, whose parts agents mount.

    ``BAI_TESTBED_RUNTIME`` names another image, which the engine has.
    """
    if chosen := os.environ.get("BAI_TESTBED_RUNTIME"):
        return chosen
    session = minimal_image(engine)
    with open(cache_dir() / "build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The base image of the tests has Python 3.11.
        options = ["--session", session, "--base", base_image(engine), "--pythons", "3.11"]
        digest = subprocess.run(
            [str(RUNTIME), "--hash", *options], capture_output=True, text=True, check=True
        ).stdout.strip()
        name = f"bai-runtime:{digest}"
        if not has_image(engine, name):
            environment = {**os.environ, "DOCKER_HOST": engine.host}
            built = subprocess.run(
                [str(RUNTIME), *options, name], capture_output=True, text=True, env=environment
            )
            if built.returncode:
                text = (built.stdout + built.stderr)[-3000:]
                raise ComponentMissing(f"the runtime image could not be built:\n{text}")
    return name


def busybox_image(engine: DockerEngine) -> str:
    """Return the name of an image that contains only a static busybox as ``/bin/sh``."""
    runtime = runtime_image(engine)
    name = f"bai-testbed-busybox:{runtime.rpartition(':')[2]}"
    if not has_image(engine, name):
        lines = ["FROM scratch", f"COPY --from={runtime} /opt/bai/rt/bin/busybox /bin/sh"]
        text = "\n".join([*lines, "ENV PATH=/bin", ""])
        environment = {**os.environ, "DOCKER_HOST": engine.host, "DOCKER_BUILDKIT": "0"}
        command = ["docker", "build", "--tag", name, "-"]
        subprocess.run(
            command, input=text, text=True, check=True, capture_output=True, env=environment
        )
    return name


def _built(engine: DockerEngine, build: Path, kind: str, *options: str) -> str:
    with open(cache_dir() / "build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        base = base_image(engine)
        digest = subprocess.run(
            [str(build), "--hash", "--base", base, *options],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        name = f"{kind}:{digest}"
        if not has_image(engine, name):
            environment = {**os.environ, "DOCKER_HOST": engine.host}
            built = subprocess.run(
                [str(build), "--base", base, *options, name],
                capture_output=True,
                text=True,
                env=environment,
            )
            if built.returncode:
                text = (built.stdout + built.stderr)[-3000:]
                raise ComponentMissing(f"the image {kind} could not be built:\n{text}")
        engine.client.images.get(name).tag(kind, "latest")
    return name


def main() -> int:
    engine = acquire()
    try:
        print(session_image(engine))
    finally:
        engine.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
