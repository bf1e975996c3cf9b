"""The documented commands of the command line, from sign-in to the end of a session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hub import RunningHub

pytestmark = pytest.mark.e2e


class Shell:
    """A user's shell with ``bai`` and a separate configuration folder."""

    def __init__(self, folder: Path) -> None:
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("BAI_")},
            "BAI_CONFIG_DIR": str(folder),
        }

    def __call__(self, *words: str, stdin: str = "", code: int = 0) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "bai_services.cli.main", *words],
            input=stdin,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert ended.returncode == code, f"{words}: {ended.returncode}\n{ended.stderr}"
        return ended.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


def test_documented_commands_work(any_hub: RunningHub, tmp_path: Path) -> None:
    bai = Shell(tmp_path / "config")
    bai("session", "ls", code=5)
    bai("login", any_hub.url, "--user", "user", "--password-stdin", stdin="wrong\n", code=5)
    bai("login", any_hub.url, "--user", "user", "--password-stdin", stdin=any_hub.password + "\n")
    assert bai.json("whoami")["username"] == "user"

    local = tmp_path / "data.csv"
    local.write_text("1,2\n")
    bai("vfolder", "create", "clidata")
    bai("vfolder", "upload", "clidata", str(local))
    session = bai.json(
        *("session", "create", "cli-one", "--project", "default"),
        *("-r", "cpu=1", "-r", "mem=1g", "-r", "cuda.shares=0.25"),
        *("--mount", "clidata:/home/work/data:ro", "--wait"),
    )
    assert session["status"] == "RUNNING"
    assert session["mounts"][0]["permission"] == "ro"
    assert [s["name"] for s in bai.json("session", "ls")["items"]] == ["cli-one"]
    assert bai.json("session", "info", "cli-one")["id"] == session["id"]
    assert any_hub.url in bai("session", "open", "cli-one", "--no-browser")
    bai("vfolder", "rm", "clidata", code=1)
    bai("session", "rm", "cli-one", "--wait")
    assert "ServerApp" in bai("session", "logs", "cli-one")

    (tmp_path / "down").mkdir()
    bai("vfolder", "download", "clidata", "data.csv", "--to", str(tmp_path / "down"))
    assert (tmp_path / "down" / "data.csv").read_text() == "1,2\n"
    bai("vfolder", "rm", "clidata")
    bai("session", "info", "no-such-session", code=4)
    bai("session", "create", "cli-two", "-r", "mem=900t", code=3)
    bai("session", "create", "cli-two", "-r", "cuda.shares=0.123", code=2)
