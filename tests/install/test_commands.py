"""`bai-hub init`, `check`, `backup`, `restore` and `upgrade --check` with SQLite, without a hub."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from click.testing import CliRunner, Result

from bai_services.core.cluster.protocol import PROTOCOL
from bai_services.core.errors import Unavailable
from bai_services.core.installation.settings import Installation
from bai_services.install.main import main
from bai_services.install.setup import hand_over
from tests.install.installation import HOST, free_port_range, write_certificate

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Run `bai-hub` in this process, because a new process takes seconds of CPU time."""

    def call(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, list(map(str, arguments)))
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def folder(tmp_path: Path, run: Run) -> Path:
    """The folder of an installation with SQLite and a generated password."""
    certificate, key = write_certificate(tmp_path / "tls")
    first = free_port_range(6)
    run(
        *("init", tmp_path / "etc", "--host", HOST, "--port", first + 5),
        *("--internal-ports", first, "--certificate", certificate, "--certificate-key", key),
        *("--engine", "process", "--user", "root", "--state", tmp_path / "state"),
        *("--admin", "root-user", "--admin-email", "root@example.com"),
    )
    return tmp_path / "etc"


def levels(result: Result) -> dict[str, str]:
    findings = json.loads(result.stdout)
    assert all(finding["remedy"] for finding in findings if finding["level"] != "ok")
    return {finding["check"]: finding["level"] for finding in findings}


def test_init_is_idempotent_and_keeps_the_password_private(folder: Path, run: Run) -> None:
    password = folder / "admin-password"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    secrets = folder.parent / "state" / "secrets"
    before = {path.name: path.read_bytes() for path in secrets.iterdir()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets.iterdir()} == {0o600}
    written = [path for path in folder.rglob("*") if path.is_file() and path != password]
    for text in (path.read_text() for path in written):
        assert password.read_text().strip() not in text
        assert not any(secret.decode() in text for secret in before.values())

    again = run("init", folder, "--admin", "other", "--admin-email", "other@example.com")
    assert "wrote" not in again.stdout
    assert "no account was created" in again.stdout
    assert {path.name: path.read_bytes() for path in secrets.iterdir()} == before
    refused = run("init", folder, "--host", "other.example.org", "--tls", "external", code=1)
    assert "exists with other settings" in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes owners")
def test_init_without_the_service_user_creates_nothing(tmp_path: Path, run: Run) -> None:
    options = ("--host", HOST, "--tls", "external", "--user", "no-such-user")
    admin = ("--admin", "root-user", "--admin-email", "root@example.com")
    refused = run("init", tmp_path / "etc", *options, "--state", tmp_path / "state", *admin, code=2)
    assert "useradd" in refused.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("step", ["create_first_admin", "hand_over"])
def test_the_next_init_completes_an_interrupted_one(
    step: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--host", HOST, "--tls", "external", "--engine", "process", "--user", "root")
    admin = ("--admin", "root-user", "--admin-email", "root@example.com")
    folder, state = tmp_path / "etc", tmp_path / "state"

    def interrupted(*_: object) -> None:
        raise Unavailable("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(f"bai_services.install.setup.{step}", interrupted)
        run("init", folder, *options, "--state", state, *admin, code=6)
    run("init", folder, *admin)
    with closing(sqlite3.connect(state / "bai.sqlite")) as database:
        ((stored,),) = database.execute("SELECT password_hash FROM users").fetchall()
        assert database.execute("SELECT count(*) FROM resource_groups").fetchone() == (1,)
    PasswordHasher().verify(stored, (folder / "admin-password").read_text().strip())

    # A password is not kept if its account was not created.
    (folder / "admin-password").unlink()
    run("init", folder, *admin)
    assert not (folder / "admin-password").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes owners")
def test_owners_of_files_behind_links_do_not_change(tmp_path: Path) -> None:
    state, outside = tmp_path / "state", tmp_path / "outside"
    (state / "secrets").mkdir(parents=True)
    (state / "secrets" / "key").touch()
    (state / "vfolders").mkdir()
    outside.mkdir()
    (outside / "shadow").touch()
    (state / "cache").symlink_to(outside)
    (state / "bai.sqlite").symlink_to(outside / "shadow")
    hand_over(Installation(host=HOST, state=str(state), service_user="nobody"))
    uid = pwd.getpwnam("nobody").pw_uid
    assert {(state / name).stat().st_uid for name in ("", "secrets", "secrets/key")} == {uid}
    assert {path.stat().st_uid for path in (outside, outside / "shadow", state / "vfolders")} == {0}


def test_check_explains_errors(folder: Path, run: Run) -> None:
    assert set(levels(run("check", folder, "--json")).values()) == {"ok", "warning"}
    (folder.parent / "state" / "secrets" / "key").chmod(0o644)
    write_certificate(folder.parent / "tls", host="other.example.org", days=-1)
    found = levels(run("check", folder, "--json", code=1))
    errors = {name for name, level in found.items() if level == "error"}
    assert errors == {"secrets", "certificate", "certificate-name"}

    settings = folder / "bai-hub.toml"
    settings.write_text(settings.read_text().replace("[address]", "[adress]"))
    result = run("check", folder, code=1)
    assert "adress.host is not a setting" in result.stdout
    settings.unlink()
    result = run("check", folder, code=1)
    assert f"create it with: bai-hub init {folder}" in result.stdout
    assert "remedy: name the folder that `bai-hub init` has written" in result.stdout


def test_paths_of_options_are_relative_to_the_current_folder(
    folder: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--host", "hub.example.org", "--tls", "external", "--engine", "process"]
    options += ["--user", "root", "--state", "state2", "--storage", "local=local:folders"]
    run("init", "etc2", *options)
    text = (tmp_path / "etc2" / "bai-hub.toml").read_text()
    assert f'path = "{tmp_path}/folders"' in text
    assert f'state = "{tmp_path}/state2"' in text


def test_a_backup_is_verified_and_restored_to_another_state_folder(
    folder: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "state" / "vfolders" / "note.txt").write_text("kept")
    (tmp_path / "state" / "vfolders" / "note.txt").chmod(0o640)
    backup = tmp_path / "hub.tar"
    # A writer that has not committed does not block the backup, and is not part of it.
    with closing(sqlite3.connect(tmp_path / "state" / "bai.sqlite")) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM users")
        run("backup", backup, folder, "--folders")
        writer.rollback()
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    refused = run("backup", backup, folder, code=1)
    assert "exists already" in refused.stderr

    other = tmp_path / "other"
    run("restore", backup, other / "etc", "--state", other / "state")
    with closing(sqlite3.connect(other / "state" / "bai.sqlite")) as database:
        assert database.execute("SELECT username FROM users").fetchall() == [("root-user",)]
    note = other / "state" / "vfolders" / "note.txt"
    assert (note.read_text(), stat.S_IMODE(note.stat().st_mode)) == ("kept", 0o640)
    for name in ("key", "cookie", "proxy", "manager-api-token"):
        original = tmp_path / "state" / "secrets" / name
        if original.exists():
            assert (other / "state" / "secrets" / name).read_bytes() == original.read_bytes()
    # A restore that fails deletes what it has created, so it can be repeated.
    third = tmp_path / "third"
    third.mkdir()
    (third / "jupyterhub.sqlite").symlink_to("missing")
    run("restore", backup, third / "etc", "--state", third, code=1)
    assert not (third / "bai.sqlite").exists()
    (third / "jupyterhub.sqlite").unlink()
    run("restore", backup, third / "etc", "--state", third)
    again = run("restore", backup, other / "etc", "--state", other / "state", code=1)
    assert "restore to another" in again.stderr

    # The databases of an installation with PostgreSQL are elsewhere, but its secrets are here.
    for database in (tmp_path / "state").glob("*.sqlite*"):
        database.unlink()
    (tmp_path / "state" / "secrets" / "key").write_text("key of the live installation")
    moved = ("--state", tmp_path / "state", "--storage", f"local={other / 'folders'}")
    refused = run("restore", backup, other / "etc3", *moved, code=1)
    assert "contains secrets" in refused.stderr
    key = (tmp_path / "state" / "secrets" / "key").read_text()
    assert key == "key of the live installation"

    content = bytearray(backup.read_bytes())
    content[len(content) // 3] ^= 1
    backup.write_bytes(content)
    new = tmp_path / "new"
    damaged = run("restore", backup, new / "etc", "--state", new / "state", code=2)
    assert "checksum" in damaged.stderr
    assert not new.exists()
    (tmp_path / "hub.tar.sha256").unlink()
    text = tmp_path / "text.tar"
    text.write_text("not a backup")
    assert "not a valid backup" in run("restore", text, new / "etc", code=2).stderr


def test_upgrade_check_lists_agents_that_are_too_old(folder: Path, run: Run) -> None:
    facts = {"old": f'{{"protocol": {PROTOCOL - 2}}}', "new": f'{{"protocol": {PROTOCOL}}}'}
    with closing(sqlite3.connect(folder.parent / "state" / "bai.sqlite")) as database:
        for name, text in facts.items():
            database.execute(
                "INSERT INTO agents (id, created_at, resource_group, status, status_changed_at, "
                "last_heartbeat_at, schedulable, engine, endpoint, architecture, version, facts) "
                "VALUES (?, '2026-01-01', 'default', 'ALIVE', '2026-01-01', '2026-01-01', 1, "
                "'docker', '', 'x86_64', '1', ?)",
                (name, text),
            )
        database.commit()
    report = json.loads(run("upgrade", "--check", folder, "--json", code=1).stdout)
    assert (report["unsupported_agents"], report["migrations"]) == (["old"], [])
    assert "agent old is too old" in run("upgrade", "--check", folder, code=1).stdout


def test_upgrade_check_lists_pending_migrations(folder: Path, run: Run) -> None:
    assert "up to date" in run("upgrade", "--check", folder).stdout
    with closing(sqlite3.connect(folder.parent / "state" / "bai.sqlite")) as database:
        (newest,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
        database.execute("UPDATE alembic_version SET version_num = '0049'")
        database.commit()
    report = json.loads(run("upgrade", "--check", folder, "--json", code=1).stdout)
    assert report["migrations"][-1][0] == newest
    assert report["revision"] == "0049"
    with closing(sqlite3.connect(folder.parent / "state" / "bai.sqlite")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    assert "later version" in run("upgrade", "--check", folder, code=1).stdout


@pytest.mark.parametrize("command", ["init", "run", "check", "backup", "restore", "upgrade"])
def test_each_help_has_an_example(command: str, run: Run) -> None:
    assert f"bai-hub {command}" in run(command, "--help").stdout.partition("  Example")[2]
