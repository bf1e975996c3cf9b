"""Imports into folders over REST: repositories, archives and files from a real server."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import BaiError, Forbidden, InvalidRequest, NotFound, QuotaExceeded
from bai_services.core.sessions.callbacks import AllowedTargets
from bai_services.db.tables.imports import folder_imports
from bai_services.manager.imports.runner import FolderImportRunner
from bai_services.manager.manager import Manager
from bai_services.manager.models.hub_client import HubClient
from tests.testbed.git_server import TOKEN, GitServer, git, serve_git
from tests.testbed.manager import Api, MovableClock, manager_on
from tests.testbed.wait import wait_until_async

MAX_BYTES = 3_000_000
NOTEBOOK = b'{"cells": []}'
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GitServer]:
    async with serve_git(tmp_path / "git") as served:
        monkeypatch.setenv("SSL_CERT_FILE", str(served.certificate))
        yield served


@pytest.fixture
async def manager(
    database_url: str, tmp_path: Path, clock: MovableClock, server: GitServer
) -> AsyncIterator[Manager]:
    reach = AllowedTargets.parse("", "127.0.0.0/8")
    settings = {
        "import_reach": reach,
        "import_max_bytes": MAX_BYTES,
        "builds_recipes": True,
    }
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, **settings) as made:
        await made.folders.vfolders.start()
        made.imports.runner.start_threads()
        yield made


@pytest.fixture
async def user(api: Api) -> Client:
    return await api.client("user")


async def run(api: Api, made: dict[str, Any], client: Client) -> dict[str, Any]:
    """Run all imports; return the import with the id in ``made``."""
    await api.world.manager.imports.runner.step()
    await api.world.manager.imports.runner.wait()
    return await client.get(f"/folder-imports/{made['id']}")


def stored(api: Api, made: dict[str, Any]) -> Path:
    (path,) = api.world.manager.settings.storage_root.glob(f"*/*/{made['folder_id']}")
    return path


def kept(api: Api, made: dict[str, Any]) -> set[str]:
    """Return the files of a failed import; its new folder is removed if it is empty."""
    root = api.world.manager.settings.storage_root
    folders = root.glob(f"*/*/{made['folder_id']}")
    return {name for folder in folders for name in names_in(folder)}


def names_in(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


@pytest.mark.both_databases
@pytest.mark.checklist("IMP-07")
async def test_branch_of_a_repository_is_imported(
    api: Api, user: Client, server: GitServer
) -> None:
    path = server.repository("course")
    server.commit(path, [("100644", "old.txt", b"main")])
    commit = server.commit(
        path,
        [
            ("100644", "week 1/a.ipynb", NOTEBOOK),
            ("100755", "run.sh", b"#!/bin/sh\n"),
            ("100644", "big.bin", POINTER),
            ("120000", "passwd", b"/etc/passwd"),
            ("160000", "module", b"c0ffee" + b"0" * 34),
        ],
        "term-2",
    )
    body = {"repo": f"{server.url}/course.git", "branch": "term-2", "path": "week 1/a.ipynb"}
    preview = await user.post("/folder-imports/preview", body)
    assert (preview["kind"], preview["host"], preview["folder"]) == ("git", "localhost", "course")
    assert server.requests == []
    made = await user.post("/folder-imports", body)
    assert (made["status"], made["folder"], made["kind"]) == ("queued", "course", "git")
    done = await run(api, made, user)
    assert (done["status"], done["problem"], done["commit_id"]) == ("done", "", commit)
    assert (done["files"], done["total_files"]) == (3, 3)
    assert done["skipped"] == {"links": 1, "submodules": 1, "lfs": 1}
    assert done["open_path"] == "lab/tree/course/week%201/a.ipynb"
    root = stored(api, done)
    assert names_in(root) == {"week 1/a.ipynb", "run.sh", "big.bin"}
    assert (root / "week 1/a.ipynb").read_bytes() == NOTEBOOK
    assert (root / "run.sh").stat().st_mode & stat.S_IXUSR
    # Nothing may remain in the staging area, because its files count towards the quota.
    assert list((root.parent / ".staging").iterdir()) == []
    # The second import gets another folder.
    assert (await user.post("/folder-imports", body))["folder"] == "course_2"


async def test_private_repository_needs_the_token(
    api: Api, user: Client, server: GitServer
) -> None:
    server.commit(server.repository("secret"), [("100644", "a.txt", b"a")])
    server.private.add("secret")
    body = {"repo": f"{server.url}/secret.git"}
    made = await run(api, await user.post("/folder-imports", body), user)
    assert (made["status"], "token" in made["problem"]) == ("failed", True)
    made = await user.post("/folder-imports", {**body, "token": TOKEN})
    assert TOKEN not in str(made)

    async def token() -> str:
        async with api.world.manager.database.read() as tx:
            column = folder_imports.c.token
            found = await tx.scalar(sa.select(column).where(folder_imports.c.id == made["id"]))
            return str(found)

    assert await token() not in ("", TOKEN)
    done = await run(api, made, user)
    assert (done["status"], await token()) == ("done", "")
    assert names_in(stored(api, done)) == {"a.txt"}
    assert not any(TOKEN in request for request in server.requests)
    queued = await user.post("/folder-imports", {**body, "token": TOKEN})
    made = await user.delete(f"/folder-imports/{queued['id']}")
    assert (made["status"], await token()) == ("cancelled", "")


async def test_failed_import_removes_only_an_empty_folder_that_it_has_created(
    api: Api, user: Client, server: GitServer, tmp_path: Path
) -> None:
    async def fail(**fields: Any) -> dict[str, Any]:
        body = {"repo": f"{server.url}/missing.git", **fields}
        made: dict[str, Any] = await user.post("/folder-imports", body)
        return made

    async def folders() -> set[str]:
        found = (await user.get("/vfolders"))["items"]
        return {folder["name"] for folder in found if folder["status"] == "ready"}

    made = await fail()
    assert await folders() == {"missing"}
    path = stored(api, made)
    assert (await run(api, made, user))["status"] == "failed"
    assert await folders() == set()
    await wait_until_async(lambda: not path.exists(), 10, "the removal of the files")

    used = await fail()
    (stored(api, used) / "notes.txt").write_text("written during the import")
    assert (await run(api, used, user))["status"] == "failed"
    assert await folders() == {"missing"}

    await user.post("/vfolders", {"name": "mine"})
    assert (await run(api, await fail(into="mine"), user))["status"] == "failed"
    assert await folders() == {"missing", "mine"}


@pytest.mark.parametrize(
    "entries, problem",
    [
        pytest.param([("100644", ".GIT/hooks/x", b"x")], "not valid", id="directory of git"),
        pytest.param([("100644", "zeros", bytes(20_000_000))], "more than", id="bomb"),
    ],
)
async def test_hostile_repository_is_rejected(
    api: Api, user: Client, server: GitServer, entries: Any, problem: str
) -> None:
    server.commit(server.repository("bad"), entries)
    made = await user.post("/folder-imports", {"repo": f"{server.url}/bad.git"})
    done = await run(api, made, user)
    assert done["status"] == "failed"
    assert problem in done["problem"]
    assert kept(api, done) == set()


@pytest.mark.parametrize("leaf", ["120000 blob", "040000 tree"])
async def test_repository_with_a_million_links_or_directories_is_rejected(
    api: Api, user: Client, server: GitServer, leaf: str
) -> None:
    path = server.repository("bad")
    content = b"target" if leaf.endswith("blob") else b""
    kind = leaf.partition(" ")[2]
    key = git(path, "hash-object", "-w", "-t", kind, "--stdin", stdin=content)
    lines = f"{leaf} {key}"
    for _ in range(6):
        tree = "".join(f"{lines}\tn{number}\n" for number in range(10))
        lines = f"040000 tree {git(path, 'mktree', stdin=tree.encode())}"
    commit = git(path, "commit-tree", lines.split()[-1], "-m", "test")
    git(path, "update-ref", "refs/heads/main", commit)
    made = await user.post("/folder-imports", {"repo": f"{server.url}/bad.git"})
    done = await run(api, made, user)
    assert (done["status"], done["problem"]) == (
        "failed",
        "the repository has more than 200000 entries",
    )


@pytest.mark.checklist("IMP-04")
async def test_failures_have_reasons(api: Api, user: Client, server: GitServer) -> None:
    server.commit(server.repository("here"), [("100644", "a.txt", b"a")])
    server.redirects["moved"] = f"{server.url}/here.git/info/refs?service=git-upload-pack"
    for body, problem in (
        ({"repo": f"{server.url}/absent.git"}, "no such repository"),
        ({"repo": f"{server.url}/here.git", "branch": "absent"}, "no such branch"),
        ({"repo": f"{server.url}/moved.git"}, "has moved"),
    ):
        done = await run(api, await user.post("/folder-imports", body), user)
        assert (done["status"], problem in done["problem"]) == ("failed", True), done["problem"]


async def test_git_connects_only_to_the_checked_address(
    api: Api, user: Client, server: GitServer
) -> None:
    """Only the check can resolve the name. Without the check's result, git would use another
    address.
    """
    port = server.url.rpartition(":")[2]
    server.commit(server.repository("a"), [("100644", "a.txt", b"a")])
    runner: FolderImportRunner = api.world.manager.imports.runner
    reach = api.world.manager.settings.import_reach
    addresses = ["127.0.0.1"]
    runner._client = HubClient("", "", reach, lambda host, port: addresses)  # noqa: SLF001
    body = {"repo": f"https://git.invalid:{port}/a.git"}
    done = await run(api, await user.post("/folder-imports", body), user)
    assert "certificate" in done["problem"]  # the certificate is for localhost
    addresses[:] = ["10.0.0.1", "169.254.169.254"]
    done = await run(api, await user.post("/folder-imports", body), user)
    assert "no public address" in done["problem"]


def packed_zip(entries: dict[str, bytes], link: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in entries.items():
            made.writestr(name, content)
        if link:
            info = zipfile.ZipInfo(link)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            made.writestr(info, "/etc")
    return buffer.getvalue()


def packed_tar(entries: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


async def test_archives_are_imported(api: Api, user: Client, server: GitServer) -> None:
    entries = {"top/a.ipynb": NOTEBOOK, "top/zeros": bytes(100_000)}
    server.files = {"/x/a.zip": packed_zip(entries), "/x/b.tar.gz": packed_tar(entries)}
    for name, folder in (("a.zip", "a"), ("b.tar.gz", "b")):
        made = await user.post("/folder-imports", {"repo": f"{server.url}/x/{name}"})
        assert (made["kind"], made["folder"]) == ("archive", folder)
        done = await run(api, made, user)
        assert (done["status"], done["problem"]) == ("done", "")
        root = stored(api, done)
        assert {name: (root / name).read_bytes() for name in names_in(root)} == entries
        assert done["bytes"] == sum(map(len, entries.values()))


@pytest.mark.parametrize(
    "content, problem",
    [
        pytest.param(packed_zip({"../../up": b"x"}), "member", id="parent"),
        pytest.param(packed_zip({}, link="link"), "link", id="link"),
        pytest.param(packed_zip({"a": bytes(9_000_000)}), "more than", id="bomb"),
        pytest.param(packed_zip({"a": b"x" * 99})[:60], "broken", id="cut"),
        pytest.param(b"PK\x03\x04" + bytes(999), "broken", id="garbage"),
    ],
)
async def test_hostile_zip_archive_is_rejected(
    api: Api, user: Client, server: GitServer, content: bytes, problem: str
) -> None:
    server.files = {"/a.zip": content}
    made = await user.post("/folder-imports", {"repo": f"{server.url}/a.zip"})
    done = await run(api, made, user)
    assert (done["status"], problem in done["problem"]) == ("failed", True), done["problem"]
    assert kept(api, done) == set()


async def test_files_are_imported_into_an_existing_folder(
    api: Api, user: Client, server: GitServer
) -> None:
    server.files = {"/a.ipynb": NOTEBOOK}
    folder = await user.post("/vfolders", {"name": "mine"})
    body = {"repo": f"{server.url}/a.ipynb", "into": "mine", "directory": "course"}
    made = await user.post("/folder-imports", body)
    done = await run(api, made, user)
    assert (done["status"], done["folder_id"]) == ("done", folder["id"])
    assert done["open_path"] == "lab/tree/mine/course/a.ipynb"
    assert names_in(stored(api, done)) == {"course/a.ipynb"}
    other = await api.client("user2")
    with pytest.raises(NotFound):
        await other.post("/folder-imports", {**body, "into": folder["id"]})
    grant = await user.put("/vfolders/mine/grants/user2", {"permission": "ro"})
    await other.post(f"/vfolder-invitations/{grant['invitation_id']}/accept")
    with pytest.raises(Forbidden):
        await other.post("/folder-imports", {**body, "into": folder["id"]})
    # The permission is revoked before the import begins.
    await user.put("/vfolders/mine/grants/user2", {"permission": "rw"})
    made = await other.post("/folder-imports", {**body, "into": folder["id"], "directory": "x"})
    await user.put("/vfolders/mine/grants/user2", {"permission": "ro"})
    assert "read-only" in (await run(api, made, other))["problem"]


@pytest.mark.checklist("IMP-08")
async def test_quota_of_the_user_applies(api: Api, user: Client, server: GitServer) -> None:
    server.commit(server.repository("big"), [("100644", "a", b"ab" * 9000)])
    admin = await api.client("admin")
    scope = f"user:{(await user.get('/me'))['id']}"
    await admin.put(f"/quota-scopes/local/{scope}", {"limit_bytes": 10_000})
    made = await user.post("/folder-imports", {"repo": f"{server.url}/big.git"})
    done = await run(api, made, user)
    assert done["status"] == "failed"
    assert kept(api, done) == set()


async def test_recipe_is_read_from_a_repository_and_a_folder(
    api: Api, user: Client, server: GitServer
) -> None:
    files = [("100644", "env/requirements.txt", b"six==1.16.0\n"), ("100644", "other", b"x")]
    server.commit(server.repository("tools"), files)
    source = {"repo": f"{server.url}/tools.git", "directory": "env"}
    recipe = {"requirements.txt": "six==1.16.0\n"}
    assert await user.post("/recipes", source) == {"recipe": recipe}
    with pytest.raises(InvalidRequest, match="at least one of"):
        await user.post("/recipes", {**source, "directory": ""})

    folder = await user.post("/vfolders", {"name": "mine"})
    root = stored(api, {"folder_id": folder["id"]})
    (root / "env").mkdir()
    (root / "env/apt.txt").write_text("graphviz\n")
    of_folder = {"vfolder": "mine", "directory": "env/"}
    assert await user.post("/recipes", of_folder) == {"recipe": {"apt.txt": "graphviz\n"}}
    other = await api.client("user2")
    with pytest.raises(NotFound):
        await other.post("/recipes", {"vfolder": folder["id"], "directory": "env"})


async def test_recipe_of_a_private_repository_needs_the_token(
    user: Client, server: GitServer
) -> None:
    server.commit(server.repository("secret"), [("100644", "apt.txt", b"curl")])
    server.private.add("secret")
    source = {"repo": f"{server.url}/secret.git"}
    with pytest.raises(InvalidRequest, match="token"):
        await user.post("/recipes", source)
    assert (await user.post("/recipes", {**source, "token": TOKEN}))["recipe"] == {
        "apt.txt": "curl"
    }


@pytest.mark.parametrize(
    "entry, problem",
    [
        pytest.param(("120000", "apt.txt", b"/etc/passwd"), "at least one of", id="link"),
        pytest.param(("100644", "apt.txt", b"\xff\xfe"), "not a text file", id="binary"),
        pytest.param(("100644", "apt.txt", b"a" * 300_000), "more than 64 KiB", id="too long"),
        pytest.param(("100644", "apt.txt", b"x; rm -rf /"), "not the name", id="shell command"),
        pytest.param(("100644", "Dockerfile", b"FROM other"), "the only image", id="other image"),
        pytest.param(("100644", "Dockerfile", b"ADD http://a /b"), "ADD", id="download"),
        pytest.param(("100644", "../apt.txt", b"a"), "not valid", id="path"),
    ],
)
async def test_hostile_recipe_is_rejected(
    user: Client, server: GitServer, entry: tuple[str, str, bytes], problem: str
) -> None:
    server.commit(server.repository("bad"), [entry])
    with pytest.raises(InvalidRequest, match=problem):
        await user.post("/recipes", {"repo": f"{server.url}/bad.git"})


async def test_sources_of_recipes_are_restricted(api: Api, user: Client, tmp_path: Path) -> None:
    for repo in ("https://192.168.0.1/a.git", "file:///etc", "http://127.0.0.1/a.git"):
        with pytest.raises(InvalidRequest):
            await user.post("/recipes", {"repo": repo})
    with pytest.raises(InvalidRequest, match="valid path"):
        await user.post("/recipes", {"vfolder": "mine", "directory": "../other"})
    folder = await user.post("/vfolders", {"name": "mine"})
    outside = tmp_path / "outside"
    outside.write_text("curl\n")
    (stored(api, {"folder_id": folder["id"]}) / "apt.txt").symlink_to(outside)
    with pytest.raises(BaiError):
        await user.post("/recipes", {"vfolder": "mine"})


async def test_limit_of_open_imports_leaves_no_folder(
    api: Api, user: Client, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.db.imports.store.MAX_OPEN_IMPORTS_PER_USER", 1)
    body = {"repo": f"{server.url}/a.git"}
    await user.post("/folder-imports", body)
    with pytest.raises(QuotaExceeded):
        await user.post("/folder-imports", body)
    assert [each["name"] for each in (await user.get("/vfolders"))["items"]] == ["a"]


async def test_private_addresses_are_refused_before_a_folder_exists(api: Api, user: Client) -> None:
    for body in (
        {"repo": "https://10.0.0.1/a.git"},
        {"repo": "https://user:pass@localhost/a.git"},
        {"repo": "http://localhost/a.git"},
        {"repo": "ext::sh -c id"},
        {"repo": "https://localhost/a.git", "branch": "--upload-pack=id"},
        {"repo": "https://localhost/a.git", "directory": "../up"},
        {"repo": "https://localhost/a.git", "folder": ".local"},
        {"repo": "https://localhost/a.git", "urlpath": "../../hub/logout"},
        {"repo": "https://localhost/a.zip", "token": "t"},
    ):
        with pytest.raises(InvalidRequest):
            await user.post("/folder-imports", body)
    assert (await user.get("/vfolders"))["items"] == []


async def test_monitors_do_not_see_the_signature_of_a_url(api: Api, user: Client) -> None:
    url = "https://example.org/a.zip"
    made = await user.post("/folder-imports", {"repo": f"{url}?signature=secret"})
    monitor = await api.client("monitor")
    assert made["source"] == f"{url}?signature=secret"
    assert (await monitor.get(f"/folder-imports/{made['id']}"))["source"] == url
    with pytest.raises(InvalidRequest, match="monitors"):
        await monitor.get("/folder-imports", source__contains="signature=s")
