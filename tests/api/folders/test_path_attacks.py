"""Path traversal attempts against the routes with a path parameter."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import pytest

from bai_services.client import Client
from bai_services.storage.transfers.staging import DIRECTORY
from tests.testbed.manager import Api

REFUSALS = ("http-400", "invalid-request", "forbidden", "conflict", "not-found")
SECRET = b"a secret of somebody else"
# URL-encoded paths. Each path leads out of the folder, is invalid, or looks like one that leads
# out.
RAW_ATTACKS = {
    "parent directories": "../../outside/secret",
    "parent directories in the middle": "dir/../../../outside/secret",
    "encoded": "%2e%2e%2f%2e%2e%2foutside%2fsecret",
    "encoded twice": "%252e%252e%252f%252e%252e%252foutside%252fsecret",
    "overlong UTF-8": "%c0%ae%c0%ae/%c0%ae%c0%ae/outside/secret",
    "backslashes": "..%5c..%5coutside%5csecret",
    "absolute": "/etc/passwd",
    "two leading slashes": "//etc/passwd",
    "absolute, encoded": "%2fetc%2fpasswd",
    "through /proc": "/proc/self/root/etc/passwd",
    "NUL": "file%00/../../outside/secret",
    "line break": "file%0d%0aX-Header:%20x",
    "control character BEL": "file%07",
    "DEL": "file%7f",
    "encoded surrogate": "%ed%a0%80",
    "not valid UTF-8": "%ff%fe",
    "component too long": "x" * 256,
    "too long": "/".join(["x" * 200] * 30),
    "too many components": "d/" * 3000,
    "through a link to outside": "out/secret",
    "link to outside": "out-file",
    "only dots": "..",
    "full-width dots": "%ef%bc%8e%ef%bc%8e/%ef%bc%8e%ef%bc%8e/outside/secret",
    "division slash": "..%e2%88%95..%e2%88%95outside%e2%88%95secret",
    "two-dot leader": "%e2%80%a5/%e2%80%a5/outside/secret",
    "right-to-left override": "%e2%80%ae/../../outside/secret",
}
# Attacks whose path is a valid name inside the folder: after one decoding, it contains escapes,
# backslashes or characters that look like ``/`` or ``.``.
HARMLESS = {
    "encoded twice",
    "backslashes",
    "full-width dots",
    "division slash",
    "two-dot leader",
}


@pytest.fixture
async def user(api: Api) -> Client:
    await api.world.manager.folders.vfolders.start()
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


@pytest.fixture
def root(api: Api, user: Client) -> Path:
    """The path of a folder that contains a file, a directory and two links.

    The links lead to a directory and to a file outside of the folder.
    """
    (found,) = api.world.manager.settings.storage_root.glob("user/*/[!.]*")
    outside = found.parent.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (found / "dir").mkdir()
    (found / "file").write_bytes(b"mine")
    (found / "out").symlink_to(outside)
    (found / "out-file").symlink_to(outside / "secret")
    return found


def files_outside_of(root: Path, top: Path) -> Mapping[str, Any]:
    """Return the contents of files and directories outside of the folder and the staging area."""
    found: dict[str, Any] = {}
    for place, _, files in os.walk(top):
        if Path(place).is_relative_to(root) or DIRECTORY in Path(place).parts:
            continue
        found[place] = sorted(files)
        found.update({f"{place}/{name}": Path(place, name).read_bytes() for name in files})
    return found


def archive_of(name: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    return packed.getvalue()


def requests_with(address: str, text: str, raw: bytes) -> list[tuple[str, str, dict[str, Any]]]:
    """Return requests with the path in the query, the JSON body, a header or an archive."""
    named = base64.b64encode(raw).decode()
    upload = {"Upload-Length": "1", "Upload-Metadata": f"path {named}"}
    length = {"Upload-Length": "1"}
    return [
        ("GET", f"/files?path={address}", {}),
        ("GET", f"/content?path={address}", {}),
        ("PUT", f"/content?path={address}", {"content": b"x"}),
        ("GET", f"/archive?path={address}&format=tar", {}),
        ("PUT", f"/archive?path={address}", {"content": archive_of(b"f")}),
        ("PUT", "/archive?path=dir", {"content": archive_of(raw)}),
        ("POST", "/directories", {"json": {"paths": [text]}}),
        ("POST", "/move", {"json": {"source": text, "target": "moved"}}),
        ("POST", "/move", {"json": {"source": "file", "target": text}}),
        ("POST", "/copy", {"json": {"source": text, "target": "copied"}}),
        ("POST", "/copy", {"json": {"source": "file", "target": text}}),
        ("POST", "/uploads", {"headers": upload}),
        ("POST", f"/uploads?path={address}", {"headers": length}),
        ("DELETE", f"/content?path={address}&recursive=true", {}),
    ]


@pytest.mark.parametrize("attack", RAW_ATTACKS)
async def test_path_cannot_lead_out_of_the_folder(
    api: Api, user: Client, root: Path, attack: str
) -> None:
    address = RAW_ATTACKS[attack]
    text, raw = unquote(address, errors="replace"), unquote_to_bytes(address)
    top = api.world.manager.settings.storage_root
    before = files_outside_of(root, top)
    done = []
    for method, path, options in requests_with(address, text, raw):
        answer = await user.http.request(method, f"/vfolders/data{path}", **options)
        called = f"{method} {path[:60]}"
        assert SECRET not in answer.content and b"root:x:0" not in answer.content, called
        assert answer.status_code < 500, (called, answer.text)
        if answer.is_success:
            done.append(called)
        else:
            assert answer.json()["error"] in REFUSALS, answer.text
        (root / "file").write_bytes(b"mine")
    assert files_outside_of(root, top) == before
    assert (root / "out-file").is_symlink() or attack == "link to outside"
    if attack not in HARMLESS:
        # Among the requests for files and contents, only DELETE may succeed: it removes the link,
        # not its target.
        reads_and_writes = [call for call in done if "/content" in call or "/files" in call]
        assert [call for call in reads_and_writes if not call.startswith("DELETE")] == []
