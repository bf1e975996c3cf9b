"""Creating the first superadmin of an installation without demo accounts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from bai_services.db.database import Database
from bai_services.environment import read_settings
from bai_services.first_admin import EXIT_REJECTED, main
from bai_services.manager.manager import Manager
from tests.testbed.manager import HUB, SUPERADMIN

ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith(("BAI_", "JUPYTERHUB_"))}
PASSWORD = "Correct-horse-7"


def first_admin(
    home: Path, *arguments: str, password: str = PASSWORD
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "error", "-m", "bai_services.first_admin", *arguments]
    return subprocess.run(
        [*words, "--password-stdin"],
        env={**ENVIRON, "BAI_HOME": str(home)},
        input=f"{password}\n",
        capture_output=True,
        text=True,
    )


@dataclass
class Rejections:
    """Runs the command in this process, because a new process takes seconds of CPU time."""

    home: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def message(self, username: str, email: str, password: str = PASSWORD) -> str:
        """Return the error message of a run that must be rejected."""
        self.monkeypatch.setenv("BAI_HOME", str(self.home))
        self.monkeypatch.setattr("sys.argv", ["", username, email, "--password-stdin"])
        self.monkeypatch.setattr("sys.stdin", StringIO(f"{password}\n"))
        assert main() == EXIT_REJECTED
        return self.capsys.readouterr().err


@pytest.fixture
def rejections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Rejections:
    for name in set(os.environ) - set(ENVIRON):
        monkeypatch.delenv(name)
    return Rejections(tmp_path, monkeypatch, capsys)


def test_rejected_input_can_be_corrected_and_then_the_first_admin_can_sign_in(
    tmp_path: Path, rejections: Rejections
) -> None:
    assert "password" in rejections.message("root-user", "root@example.com", "short")
    assert "name" in rejections.message("Root User", "root@example.com")
    assert "e-mail" in rejections.message("root-user", "nowhere")

    done = first_admin(tmp_path, "root-user", "root@example.com", "--domain", "lab")
    assert done.returncode == 0, done.stderr
    assert "secret key" in done.stdout
    assert PASSWORD not in done.stdout
    asyncio.run(check_sign_in(tmp_path))

    message = rejections.message("other", "other@example.com")
    assert "root-user is already a superadmin" in message


async def check_sign_in(home: Path) -> None:
    settings = read_settings({"BAI_HOME": str(home)})
    manager = Manager(settings, Database(settings.database_url))
    try:
        account = await manager.accounts.sign_ins.verify(HUB, "root-user", PASSWORD, "127.0.0.1")
        assert account.username == "root-user"
        row = await manager.accounts.users.get(SUPERADMIN, "root-user")
        assert (row.role, row.domain) == ("superadmin", "lab")
    finally:
        await manager.stop()
