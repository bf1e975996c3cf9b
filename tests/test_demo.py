"""Repeated creation of the demo data, and the manager's settings from the environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bai_services.core.accounts.passwords import broken_rules
from bai_services.core.listing import ListQuery
from bai_services.db.database import Database
from bai_services.demo import USERS, random_password
from bai_services.environment import read_settings
from bai_services.manager.manager import Manager
from tests.testbed.manager import HUB, SUPERADMIN

ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith(("BAI_", "JUPYTERHUB_"))}


def run_demo(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "bai_services.demo", *arguments],
        env={**ENVIRON, "BAI_HOME": str(home), **environ},
        capture_output=True,
        text=True,
        check=True,
    )


def passwords_in(text: str) -> dict[str, str]:
    """Return the passwords in the table of accounts, by user name."""
    return dict(re.findall(r"^ +(\S+) +\w+ +domain \w+ +(\S+)$", text, re.MULTILINE))


async def check_sign_in(home: Path, passwords: dict[str, str]) -> None:
    settings = read_settings({"BAI_HOME": str(home)})
    manager = Manager(settings, Database(settings.database_url))
    try:
        for username, password in passwords.items():
            account = await manager.accounts.sign_ins.verify(HUB, username, password, "127.0.0.1")
            assert account.username == username
    finally:
        await manager.stop()


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The home folder of a first run, which tests must copy, and the output of that run."""
    home = tmp_path_factory.mktemp("first-run")
    return home, run_demo(home).stdout


@pytest.fixture
def created(first_run: tuple[Path, str], tmp_path: Path) -> Path:
    """A home folder in which the demo exists."""
    return shutil.copytree(first_run[0], tmp_path, dirs_exist_ok=True)


async def test_second_run_changes_the_engine_and_passwords_only_on_reset(
    first_run: tuple[Path, str], created: Path
) -> None:
    generated = passwords_in(first_run[1])
    assert set(generated) == {user.username for user in USERS}
    assert len(set(generated.values())) == len(generated)
    second = run_demo(created, "--engine", "docker", "--image", "mine:1")
    assert passwords_in(second.stdout) == {}
    assert "--reset-passwords" in second.stdout
    await check_second_run(created)
    await check_sign_in(created, generated)
    reset = passwords_in(run_demo(created, "--reset-passwords").stdout)
    assert set(reset) == set(generated)
    assert not set(reset.values()) & set(generated.values())
    await check_sign_in(created, reset)


async def test_weak_demo_password_is_set_with_a_warning(created: Path) -> None:
    done = run_demo(created, BAI_DEMO_PASSWORD="pw")
    assert "must have at least 8 characters" in done.stderr
    assert "pw" not in done.stdout.split() and passwords_in(done.stdout) == {}
    await check_sign_in(created, {user.username: "pw" for user in USERS})


async def check_second_run(home: Path) -> None:
    """Check that the run changed the engine and duplicated nothing."""
    settings = read_settings({"BAI_HOME": str(home)})
    manager = Manager(settings, Database(settings.database_url))
    every = ListQuery(limit=100, sort=("name",))
    try:
        domains = await manager.accounts.domains.page(SUPERADMIN, every)
        projects = await manager.accounts.projects.page(SUPERADMIN, ListQuery())
        presets = await manager.cluster.presets.page(SUPERADMIN, every)
        group = await manager.cluster.resource_groups.get(SUPERADMIN, "default")
        image = await manager.cluster.images.get(SUPERADMIN, "python")
    finally:
        await manager.stop()
    assert [d.name for d in domains.items] == ["acme", "default"]
    assert [(p.domain, p.name, p.default_image) for p in projects.items] == [
        ("acme", "default", "python"),
        ("default", "default", "python"),
        ("default", "research", "python"),
    ]
    assert [p.name for p in presets.items] == [
        "cpu-medium",
        "cpu-small",
        "gpu-half",
        "gpu-quarter",
        "gpu-whole",
    ]
    assert (group.engine, group.is_default, image.name) == ("docker", True, "mine:1")


def test_secrets_are_stable_private_and_not_in_repr(tmp_path: Path) -> None:
    settings = read_settings({"BAI_HOME": str(tmp_path)})
    assert read_settings({"BAI_HOME": str(tmp_path)}) == settings
    for file in (tmp_path / "secrets").iterdir():
        assert file.stat().st_mode & 0o077 == 0
        assert file.read_text() not in repr(settings)
    url = "postgresql+asyncpg://bai:secret-word@localhost/bai"
    settings = read_settings({"BAI_HOME": str(tmp_path), "BAI_DATABASE_URL": url})
    assert "secret-word" not in repr(settings)


def test_error_names_an_unreadable_secret_file(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    with pytest.raises(SystemExit, match=f"BAI_KEY_FILE: {missing} cannot be read"):
        read_settings({"BAI_HOME": str(tmp_path), "BAI_KEY_FILE": missing})


def test_random_passwords_satisfy_the_rules() -> None:
    assert all(broken_rules(random_password(), "user", "user@example.com") == [] for _ in range(50))


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("BAI_MAX_FILE_BYTES", "1g", "must be a whole number of at least 0, not '1g'"),
        ("BAI_MAX_OPEN_UPLOADS", "0", "must be a whole number of at least 1, not '0'"),
        ("BAI_TRASH_DAYS", "-1", "must be a whole number from 0 to 36500, not '-1'"),
        ("BAI_TRASH_DAYS", "9" * 5000, "must be a whole number from 0 to 36500, not '999"),
        ("BAI_ONE_TIME_CODES", "on", "'on' is not one of off, optional, required"),
        ("BAI_ONE_TIME_CODES", "off,staff", "'staff' is not DOMAIN=RULE"),
        ("BAI_TRASH_DAYS", "²", "must be a whole number from 0 to 36500, not '²'"),
        ("BAI_STORAGE_HOSTS", "a=local:/x,a=local:/y", "duplicate host name 'a'"),
        ("BAI_STORAGE_HOSTS", "a=local", "is not NAME=BACKEND:/PATH"),
        ("BAI_TRUSTED_PROXIES", "nowhere", "list networks and addresses"),
        ("JUPYTERHUB_OAUTH_ACCESS_SCOPES", "[access", "must be a JSON list of scopes"),
        ("JUPYTERHUB_OAUTH_ACCESS_SCOPES", '"access"', "must be a JSON list of scopes"),
        ("JUPYTERHUB_OAUTH_ACCESS_SCOPES", "[1]", "must be a JSON list of scopes"),
    ],
)
def test_error_names_an_invalid_variable(
    tmp_path: Path, variable: str, text: str, message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        read_settings({"BAI_HOME": str(tmp_path), variable: text})
    assert str(caught.value).startswith(variable) and message in str(caught.value)


def test_error_of_an_empty_secret_suggests_deletion_only_of_a_generated_secret(
    tmp_path: Path,
) -> None:
    configured = tmp_path / "key"
    configured.touch()
    with pytest.raises(SystemExit, match="is empty$"):
        read_settings({"BAI_HOME": str(tmp_path), "BAI_KEY_FILE": str(configured)})
    (tmp_path / "secrets" / "key").write_text("")
    with pytest.raises(SystemExit, match="delete it and a new secret is generated$"):
        read_settings({"BAI_HOME": str(tmp_path)})


def test_callback_settings_restrict_hosts_and_allow_networks(tmp_path: Path) -> None:
    environ = {"BAI_HOME": str(tmp_path), "BAI_CALLBACK_NETWORKS": "10.1.0.0/16"}
    allowed = read_settings(environ).callback_targets
    assert allowed.allows_address("10.1.2.3")
    assert not allowed.allows_address("10.2.2.3")
    restricted = read_settings(environ | {"BAI_CALLBACK_HOSTS": "*.example.org"}).callback_targets
    assert restricted.allows_name("ci.example.org")
    assert not restricted.allows_name("ci.example.com")
    assert read_settings(environ | {"BAI_CALLBACK_HOSTS": "none"}).callback_targets.is_off
    with pytest.raises(SystemExit, match="BAI_CALLBACK_HOSTS, BAI_CALLBACK_NETWORKS: .*BAI_"):
        read_settings(environ | {"BAI_CALLBACK_HOSTS": "https://example.org"})
