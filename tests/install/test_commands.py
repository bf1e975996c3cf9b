"""`bai-hub init`, `check`, `backup`, `restore` and `upgrade --check` with SQLite, without a hub."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bai_services.install.main import main
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
    assert "address.host" in result.stdout or "adress.host" in result.stdout


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
    again = run("restore", backup, other / "etc", "--state", other / "state", code=1)
    assert "restore to another" in again.stderr

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
    assert f"bai-hub {command}" in run(command, "--help").stdout.partition("Example:")[2]
