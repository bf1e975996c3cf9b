"""`bai admin registry`: credentials from files, and scans."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.manager import Api

from .conftest import Bai

URL = "https://registry.example.org"


async def test_registries_get_credentials_from_files_and_are_scanned(
    bai: Bai, api: Api, tmp_path: Path
) -> None:
    made = await bai(
        "admin", "registry", "create", "lab", "--url", URL, "--patterns", "team/*", "--json"
    )
    assert (made.document["patterns"], made.document["has_password"]) == (["team/*:*"], False)
    (tmp_path / "password").write_text("registry-password\n")
    changed = await bai(
        *("admin", "registry", "credentials", "lab", "--username", "robot"),
        *("--password-file", tmp_path / "password", "--json"),
    )
    assert (changed.document["username"], changed.document["has_password"]) == ("robot", True)
    assert "registry-password" not in changed.stdout
    nothing = await bai("admin", "registry", "credentials", "lab")
    assert "give --username" in nothing.stderr
    queued = await bai("admin", "registry", "scan", "lab")
    assert "the scan is queued" in queued.stdout + queued.stderr
    # The manager of the test runs no loops: the scan remains queued until it is cancelled.
    cancelled = await bai("admin", "registry", "cancel-scan", "lab", "--json")
    assert cancelled.document["scan_status"] == "cancelled"
    assert "cancelled" in (await bai("admin", "registry", "list")).stdout
    refused = await bai("admin", "registry", "scan", "lab", by="user")
    assert refused.code != 0
