"""A production installation from the wheel on a Debian machine, and its restoration on another."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.install import debian_root
from tests.install.installation import (
    HOST,
    PROGRAM,
    RunningInstallation,
    free_port_range,
    read_file,
    run_bai_hub,
    start_session,
    write_certificate,
)
from tests.testbed import ComponentMissing
from tests.testbed.postgres import Postgres
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

PASSWORD = "Correct-horse-7"
MOUNT = {"vfolder": "results", "path": "/home/work/results", "permission": "rw"}


@contextmanager
def two_databases(server: Postgres) -> Iterator[str]:
    """Yield the URL of a new database; the Hub's own one has the suffix _jupyterhub."""
    name = server.create_database()
    server.execute(f'CREATE DATABASE "{name}_jupyterhub" TEMPLATE template0')
    try:
        yield f"postgresql://bai@/{name}?host={server.folder}"
    finally:
        server.drop_database(name)
        server.drop_database(f"{name}_jupyterhub")


def verify_audit_log(rest: httpx.Client) -> int:
    """Check the hash chain of the audit log; return the number of its entries."""
    chain = rest.get("/audit-log/verification").json()
    assert chain["problem"] is None
    return int(chain["checked"])


def test_an_installation_serves_sessions_and_its_backup_is_restored_elsewhere(
    tmp_path: Path, postgres_server: Postgres, wheel: Path
) -> None:
    shared = tmp_path / "shared"
    certificate, key = write_certificate(shared / "tls")
    password_file = shared / "password"
    password_file.write_text(f"{PASSWORD}\n")
    backup = shared / "hub.tar"
    folder, state = shared / "etc", shared / "state"
    try:
        debian = debian_root.create(tmp_path / "debian", wheel, shared, postgres_server.folder)
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)
    with two_databases(postgres_server) as first_url, two_databases(postgres_server) as second_url:
        first = free_port_range(6)
        options = ["--host", HOST, "--port", first + 5, "--internal-ports", first]
        options += ["--certificate", certificate, "--certificate-key", key, "--user", "root"]
        options += ["--engine", "process", "--state", state, "--database", first_url]
        options += ["--admin", "root-user", "--admin-email", "root@example.com"]
        options += ["--admin-password-file", password_file]
        done = run_bai_hub(debian.program, "init", folder, *map(str, options), machine=debian)
        assert "root-user is a superadmin" in done.stdout
        assert "warning: with the engine process" in done.stderr
        original = RunningInstallation(folder, state, first + 5, certificate, PASSWORD, debian)
        try:
            original.start()
            with original.rest() as rest:
                made = rest.post("/vfolders", json={"name": "results"})
                assert made.status_code == 201, made.text
                session = start_session(original, rest, mounts=[MOUNT])
                note = {"type": "file", "format": "text", "content": "kept"}
                with original.client(Authorization=rest.headers["Authorization"]) as client:
                    url = f"{session['url']}api/contents/results/note.txt"
                    response = client.put(url, content=json.dumps(note))
                    assert response.status_code == 201, response.text
                chained = wait_until(lambda: verify_audit_log(rest), 30, "chained entries")
                # Create the backup on this machine, because the Debian root has no client of
                # PostgreSQL.
                run_bai_hub(PROGRAM, "backup", backup, folder, "--folders")
                rest.delete(f"/sessions/{session['id']}")
        finally:
            original.stop()
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600

        first = free_port_range(6)
        options = ["--state", tmp_path / "state2", "--database", second_url]
        options += ["--port", first + 5, "--internal-ports", first]
        run_bai_hub(PROGRAM, "restore", backup, tmp_path / "etc2", *map(str, options))
        restored = RunningInstallation(
            tmp_path / "etc2", tmp_path / "state2", first + 5, certificate, PASSWORD
        )
        try:
            restored.start()
            done = run_bai_hub(PROGRAM, "check", tmp_path / "etc2", "--json")
            levels = {finding["check"]: finding["level"] for finding in json.loads(done.stdout)}
            assert levels["database"] == levels["hub-database"] == levels["schema"] == "ok"
            assert levels["ports"] == levels["certificate-name"] == levels["secrets"] == "ok"
            with restored.rest() as rest:
                # The backup contains the hash chain of the audit log.
                assert verify_audit_log(rest) >= chained
                session = start_session(restored, rest, mounts=[MOUNT])
                assert read_file(restored, rest, session, "results/note.txt") == "kept"
                rest.delete(f"/sessions/{session['id']}")
        finally:
            restored.stop()
