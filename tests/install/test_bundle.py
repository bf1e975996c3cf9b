"""`bai-hub bundle`: an installation from a bundle needs no network."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from bai_services import __version__
from tests.testbed import images
from tests.testbed.docker_engine import DockerEngine


def bundle(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bai_services.install", "bundle", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def test_a_bundle_installs_without_a_network(
    wheel: Path, docker_engine: DockerEngine, tmp_path: Path
) -> None:
    image = images.base_image(docker_engine)
    file = tmp_path / "bundle.tar"
    words = ("--extra", "cli", "--image", image)
    made = bundle(file, "--wheel", wheel, *words, DOCKER_HOST=docker_engine.host)
    assert made.returncode == 0, made.stderr
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / f"bai-hub-bundle-{__version__}"
    lines = (folder / "README.txt").read_text().splitlines()
    commands = [line.strip() for line in lines if line.startswith("    ")]
    check, create, install, load, _ = (
        command.replace("/opt/bai-hub", str(tmp_path / "venv")) for command in commands
    )
    # Run the commands in a network namespace without interfaces, as on a machine without a network.
    script = f"set -e; {check}; {create}; {install}; {tmp_path}/venv/bin/bai --version"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, cwd=folder
    )
    assert (done.returncode, __version__ in done.stdout) == (0, True), done.stderr
    path = folder / load.rpartition(" ")[2]
    loaded = docker_engine.client.images.load(path.read_bytes())
    assert image in loaded[0].tags


def test_errors_name_the_reason(wheel: Path, docker_engine: DockerEngine, tmp_path: Path) -> None:
    other = tmp_path / "other-1.0-py3-none-any.whl"
    other.touch()
    refused = bundle(tmp_path / "b.tar", "--wheel", other)
    assert (refused.returncode, "is not a wheel of bai-hub" in refused.stderr) == (2, True)
    existing = tmp_path / "existing.tar"
    existing.touch()
    refused = bundle(existing, "--wheel", wheel)
    assert "exists already" in refused.stderr
    words = ("--extra", "cli", "--image", "no-such-image:1")
    refused = bundle(tmp_path / "b.tar", "--wheel", wheel, *words, DOCKER_HOST=docker_engine.host)
    assert "has no image no-such-image:1" in refused.stderr
    assert [path.name for path in tmp_path.glob("*.tar*")] == ["existing.tar"]
