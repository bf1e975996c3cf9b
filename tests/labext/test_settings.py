"""Configuration of a session's Jupyter server, and a real server that uses it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from traitlets.config import Config

from bai_labext import settings
from tests.testbed.jupyter import JupyterServer
from tests.testbed.session_server import session_server


def configure(environ: dict[str, str]) -> Config:
    config = Config()
    settings.configure(config, environ)
    return config


@pytest.mark.parametrize(
    ("engine", "uid", "allowed"),
    [("process", 0, True), ("process", 1000, False), ("docker", 0, False), ("", 0, False)],
)
def test_root_is_allowed_only_in_the_process_engine(
    monkeypatch: pytest.MonkeyPatch, engine: str, uid: int, allowed: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert configure({"BAI_SESSION_ENGINE": engine}).ServerApp.allow_root is allowed


def test_a_session_starts_in_its_home_without_update_checks() -> None:
    config = configure({"HOME": "/home/work"})
    assert config.ServerApp.root_dir == "/home/work"
    assert config.LabApp.news_url is None
    assert config.LabApp.extension_manager == "readonly"


def test_terminals_fall_back_to_an_existing_shell() -> None:
    assert settings.shell({"SHELL": "/nonexistent"}) in ("/bin/bash", "/bin/sh")


def test_jupyterlab_is_imported_without_slow_steps(tmp_path: Path) -> None:
    """These steps of the start are skipped: lark builds a grammar (0.6 s of CPU time), and node
    runs (0.4 s).
    """
    runs = tmp_path / "runs"
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho $* >> {runs}\n")
    node.chmod(0o755)
    code = (
        "import sys; from bai_labext.__main__ import import_jupyterlab as go; go()\n"
        "assert 'jupyterlab.labapp' in sys.modules and 'lark' not in sys.modules\n"
        "from jupyterlab.commands import AppOptions, get_app_info\n"
        "assert AppOptions().registry.startswith('https://')\n"
        "assert get_app_info()['core_extensions']\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PATH": path})
    assert not runs.exists(), runs.read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    home = tmp_path_factory.mktemp("home")
    # The folders of this PATH contain no code-server.
    with session_server(home, {"PATH": "/usr/bin:/bin"}) as running:
        yield running


@pytest.mark.e2e
def test_apps_are_listed_with_the_reason_if_not_offered(server: JupyterServer) -> None:
    items = {item["name"]: item for item in server.get("bai/api/apps").json()["items"]}
    assert items["jupyterlab"]["is_offered"] and items["tensorboard"]["is_offered"]
    assert not items["vscode"]["is_offered"]
    assert "not installed" in items["vscode"]["message"]


@pytest.mark.e2e
def test_the_address_of_an_app_that_is_not_offered_shows_the_reason(server: JupyterServer) -> None:
    answer = server.get("vscode/some/path")
    assert answer.status_code == 404
    assert "VS Code is not installed" in answer.text


@pytest.mark.e2e
def test_tensorboard_responds_and_listens_on_no_port(server: JupyterServer) -> None:
    answer = server.get("tensorboard/data/environment")
    assert answer.status_code == 200
    assert answer.json()["data_location"].endswith("/logs")
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True).stdout
    tensorboards = {
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"bai_labext.tensorboard_server" in _read(path)
    }
    assert tensorboards
    assert not tensorboards & set(re.findall(r"pid=(\d+)", listening))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.e2e
@pytest.mark.parametrize("path", ["lab", "tensorboard/", "vscode/", "bai/api/apps"])
def test_requests_without_a_token_are_denied(server: JupyterServer, path: str) -> None:
    answer = server.get(path, token=None)
    assert answer.status_code in (302, 403)
