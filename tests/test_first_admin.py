"""Creating the first superadmin of an installation without demo accounts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bai_services.db.database import Database
from bai_services.environment import read_settings
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


async def test_first_admin_can_sign_in_as_superadmin(tmp_path: Path) -> None:
    done = first_admin(tmp_path, "root-user", "root@example.com", "--domain", "lab")
    assert done.returncode == 0, done.stderr
    assert "secret key" in done.stdout
    assert PASSWORD not in done.stdout
    settings = read_settings({"BAI_HOME": str(tmp_path)})
    manager = Manager(settings, Database(settings.database_url))
    try:
        account = await manager.accounts.sign_ins.verify(HUB, "root-user", PASSWORD, "127.0.0.1")
        assert account.username == "root-user"
        row = await manager.accounts.users.get(SUPERADMIN, "root-user")
        assert (row.role, row.domain) == ("superadmin", "lab")
    finally:
        await manager.stop()


def test_first_admin_is_rejected_if_a_superadmin_exists(tmp_path: Path) -> None:
    first_admin(tmp_path, "root-user", "root@example.com")
    done = first_admin(tmp_path, "other", "other@example.com")
    assert done.returncode == 3
    assert "root-user is already a superadmin" in done.stderr


@pytest.mark.parametrize(
    ("username", "email", "password", "message"),
    [
        ("root-user", "root@example.com", "short", "password"),
        ("Root User", "root@example.com", PASSWORD, "name"),
        ("root-user", "nowhere", PASSWORD, "e-mail"),
    ],
)
def test_invalid_input_is_rejected_and_can_be_corrected(
    tmp_path: Path, username: str, email: str, password: str, message: str
) -> None:
    done = first_admin(tmp_path, username, email, password=password)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert message in done.stderr
    assert first_admin(tmp_path, "root-user", "root@example.com").returncode == 0
