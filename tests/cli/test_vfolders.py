"""`bai vfolder` against a real manager."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bai_services.cli.folders import transfer
from bai_services.cli.folders.local_files import CompletedFiles, PartialFile
from bai_services.core.errors import BaiError, Unavailable
from bai_services.core.listing import MAX_LIMIT
from tests.testbed.manager import Api

from .conftest import Bai

MIB = 2**20


@pytest.fixture(autouse=True)
async def storage(api: Api) -> None:
    await api.world.manager.folders.vfolders.start()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with some files, a symbolic link to /etc/hostname, and a named pipe."""
    folder = tmp_path / "mine"
    (folder / "deep/er").mkdir(parents=True)
    (folder / "small.txt").write_text("small")
    (folder / "empty").write_bytes(b"")
    (folder / "deep/er/ü b?#%.bin").write_bytes(os.urandom(3 * 2**20 + 1))
    (folder / "link").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


async def test_directory_is_uploaded_and_downloaded(bai: Bai, files: Path, tmp_path: Path) -> None:
    made = (await bai("vfolder", "create", "data", "--json", by="user")).document
    assert (made["name"], made["owner"], made["status"]) == ("data", "user", "ready")
    up = (await bai("vfolder", "upload", "data", files, "--json", by="user")).document
    assert {item["path"]: item["size"] for item in up["items"]} == {
        f"mine/{name}": len(data) for name, data in content(files).items()
    }
    listed = (await bai("vfolder", "files", "data", "mine", "--json", by="user")).document
    assert [(item["name"], item["type"]) for item in listed["items"]] == [
        ("deep", "directory"),
        ("empty", "file"),
        ("small.txt", "file"),
    ]
    down = await bai("vfolder", "download", "data", "mine", "--to", tmp_path / "down", by="user")
    assert (down.code, "3 files" in down.stdout) == (0, True)
    assert content(tmp_path / "down/mine") == content(files)


async def test_file_is_transferred_to_the_target_directory(
    bai: Bai, files: Path, tmp_path: Path
) -> None:
    await bai("vfolder", "create", "data", by="user")
    await bai("vfolder", "upload", "data", files / "small.txt", "--to", "/a/b/", by="user")
    down = (
        await bai(
            "vfolder", "download", "data", "a/b/small.txt", "-o", tmp_path / "x", "--json",
            by="user",
        )
    ).document  # fmt: skip
    target = tmp_path / "x/small.txt"
    assert down["items"] == [{"path": "a/b/small.txt", "file": str(target), "size": 5}]
    assert target.read_text() == "small"


async def test_download_overwrites_only_with_force(bai: Bai, files: Path, tmp_path: Path) -> None:
    await bai("vfolder", "create", "data", by="user")
    await bai("vfolder", "upload", "data", files / "small.txt", by="user")
    target = tmp_path / "small.txt"
    target.write_text("mine")
    arguments = ("vfolder", "download", "data", "small.txt", "--to", tmp_path)
    refused = await bai(*arguments, by="user")
    assert (refused.code, "--force" in refused.stderr) == (1, True)
    assert target.read_text() == "mine"
    assert (await bai(*arguments, "--force", by="user")).code == 0
    assert target.read_text() == "small"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".bai-")]


async def test_folder_is_shared_and_unshared(bai: Bai, files: Path) -> None:
    await bai("vfolder", "create", "data", by="user")
    assert (await bai("vfolder", "files", "data", by="user2")).code == 4
    shared = (await bai("vfolder", "share", "data", "user2", "--json", by="user")).document
    assert (shared["user"], shared["permission"]) == ("user2", "ro")
    assert (await bai("vfolder", "files", "data", by="user2")).code == 4
    info = (await bai("vfolder", "info", "data", "--json", by="user")).document
    assert ([i["invitee"] for i in info["invitations"]], info["grants"]) == (["user2"], [])
    assert (await bai("vfolder", "accept", shared["invitation_id"], by="user2")).code == 0
    info = (await bai("vfolder", "info", "data", "--json", by="user")).document
    assert [(g["user"], g["permission"]) for g in info["grants"]] == [("user2", "ro")]
    up = ("vfolder", "upload", "data", files / "small.txt")
    assert (await bai(*up, by="user2")).code == 5
    await bai("vfolder", "share", "data", "user2", "--permission", "rw", by="user")
    assert (await bai(*up, by="user2")).code == 0
    await bai("vfolder", "unshare", "data", "user2", by="user")
    assert (await bai("vfolder", "files", "data", by="user2")).code == 4


async def test_grantee_can_read_folder_info(bai: Bai) -> None:
    await bai("vfolder", "create", "data", by="user")
    text = (await bai("vfolder", "share", "data", "user2", by="user")).stdout
    invitation = re.search(r"bai vfolder accept ([\w-]+)", text)
    assert invitation is not None
    await bai("vfolder", "accept", invitation[1], by="user2")
    assert (await bai("vfolder", "info", "data", "--json", by="user2")).document["name"] == "data"


async def test_folder_info_has_all_grants_and_invitations(bai: Bai, api: Api) -> None:
    folder = (await bai("vfolder", "create", "data", "--json", by="user")).document
    await api.world.share_with_many(folder["id"], grants=MAX_LIMIT + 1, invitations=MAX_LIMIT + 2)
    info = (await bai("vfolder", "info", "data", "--json", by="user")).document
    assert (len(info["grants"]), len(info["invitations"])) == (MAX_LIMIT + 1, MAX_LIMIT + 2)
    shown = (await bai("vfolder", "info", "data", by="user")).stdout
    assert shown.count(" (read)") == 2 * MAX_LIMIT + 3


async def test_folder_is_trashed_restored_and_purged(bai: Bai, files: Path) -> None:
    await bai("vfolder", "create", "data", by="user")
    await bai("vfolder", "upload", "data", files / "small.txt", by="user")
    renamed = (await bai("vfolder", "rename", "data", "kept", "--json", by="user")).document
    assert renamed["name"] == "kept"
    assert (await bai("vfolder", "rm", "kept", by="user")).code == 0
    assert (await bai("vfolder", "ls", "--json", by="user")).document["items"] == []
    trash = (await bai("vfolder", "ls", "--trash", "--json", by="user")).document
    assert [item["name"] for item in trash["items"]] == ["kept"]
    table = (await bai("vfolder", "ls", "--trash", by="user")).stdout.splitlines()
    assert table[0].split() == ["NAME", "OWNER", "PROJECT", "PURGE", "HOST", "PERMISSION"]
    info = (await bai("vfolder", "info", trash["items"][0]["id"], by="user")).stdout
    assert re.search(r"Purge +in \d+ d", info)
    assert (await bai("vfolder", "restore", "kept", by="user")).code == 0
    listed = (await bai("vfolder", "files", "kept", "--json", by="user")).document
    assert [item["name"] for item in listed["items"]] == ["small.txt"]
    assert (await bai("vfolder", "rm", "kept", "small.txt", by="user")).code == 0
    assert (await bai("vfolder", "files", "kept", "--json", by="user")).document["items"] == []
    await bai("vfolder", "rm", "kept", by="user")
    assert (await bai("vfolder", "purge", "kept", by="user")).code == 2
    assert (await bai("vfolder", "purge", "kept", "--yes", by="user")).code == 0
    assert (await bai("vfolder", "restore", "kept", by="user")).code == 4


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["create", "no/name"], 2, "invalid-request"),
        (["create", "data"], 1, "already-exists"),
        (["info", "../data"], 4, "not-found"),
        (["files", "data", "../.."], 2, "invalid-request"),
        (["download", "data", "nothing"], 4, "not-found"),
        (["rm", "data", "nothing"], 4, "not-found"),
        (["share", "data", "nobody"], 4, "not-found"),
        (["share", "data", "acme-user"], 4, "not-found"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
async def test_errors_have_the_expected_exit_codes(
    bai: Bai, arguments: list[str], code: int, error: str
) -> None:
    await bai("vfolder", "create", "data", by="user")
    done = await bai("vfolder", *arguments, "--json", by="user")
    assert (done.code, done.error["error"]) == (code, error)


async def test_named_pipe_cannot_be_uploaded(bai: Bai, files: Path) -> None:
    await bai("vfolder", "create", "data", by="user")
    done = await bai("vfolder", "upload", "data", files / "pipe", "--json", by="user")
    assert (done.code, "not a regular file" in done.error["message"]) == (2, True)


async def test_two_files_with_the_same_target_are_rejected(bai: Bai, files: Path) -> None:
    await bai("vfolder", "create", "data", by="user")
    (files / "deep/small.txt").write_text("other")
    done = await bai(
        "vfolder", "upload", "data", files / "small.txt", files / "deep/small.txt", by="user"
    )
    assert (done.code, "would both become small.txt" in done.stderr) == (2, True)


async def test_many_small_files_are_uploaded_in_one_request(
    bai: Bai, api: Api, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    for number in range(60):
        (tree / f"d{number % 3}").mkdir(parents=True, exist_ok=True)
        (tree / f"d{number % 3}" / f"{number} ü.txt").write_text(str(number))
    await bai("vfolder", "create", "data", by="user")
    up = (await bai("vfolder", "upload", "data", tree, "--json", by="user")).document
    assert len(up["items"]) == 60
    log = await (await api.client("admin")).get("/audit-log", action="vfolder.upload")
    assert [item["details"]["files"] for item in log["items"]] == [60]
    await bai("vfolder", "download", "data", "tree", "--to", tmp_path / "down", by="user")
    assert content(tmp_path / "down/tree") == content(tree)


async def test_patterns_select_the_transferred_files(bai: Bai, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("a.csv", "b.txt", ".git/config", "sub/c.csv", "sub/skip/d.csv"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    await bai("vfolder", "create", "data", by="user")
    words = ("vfolder", "upload", "data", tree, "--exclude", ".git", "--exclude", "*/skip/*")
    up = (await bai(*words, "--json", by="user")).document
    assert [item["path"] for item in up["items"]] == ["tree/a.csv", "tree/b.txt", "tree/sub/c.csv"]
    words = ("vfolder", "download", "data", "tree", "--include", "*.csv", "--to", tmp_path / "down")
    down = (await bai(*words, "--json", by="user")).document
    assert [item["path"] for item in down["items"]] == ["tree/a.csv", "tree/sub/c.csv"]


async def test_interrupted_transfer_resumes(
    bai: Bai, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHUNK_BYTES", 2 * MIB)
    monkeypatch.setattr(transfer, "MAX_ATTEMPTS", 1)
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(9 * MIB))
    await bai("vfolder", "create", "data", by="user")
    pieces = api.world.manager.folders.uploads
    original, seen = pieces.open_chunk, []

    async def fail_third_chunk(
        caller: Any, key: str, upload: str, offset: int, checksum: Any
    ) -> Any:
        seen.append((offset, checksum is not None))
        if len(seen) == 3:
            raise Unavailable("the storage host does not respond")
        return await original(caller, key, upload, offset, checksum)

    monkeypatch.setattr(pieces, "open_chunk", fail_third_chunk)
    words = ("vfolder", "upload", "data", big, "--checksum")
    assert (await bai(*words, by="user")).code == 6
    assert (await bai(*words, by="user")).code == 0
    offsets = [offset // MIB for offset, _ in seen]
    assert offsets == [0, 2, 4, 4, 6, 8]
    assert all(has_checksum for _, has_checksum in seen)
    await bai("vfolder", "download", "data", "big.bin", "--to", tmp_path / "down", by="user")
    assert content(tmp_path / "down")["big.bin"] == big.read_bytes()
    # An interrupted download also resumes: it keeps the bytes of the partial file.
    (tmp_path / "down/big.bin").unlink()
    client = await api.client("user")
    (entry,) = (await client.get("/vfolders/data/files"))["items"]
    part = PartialFile(tmp_path / "down/big.bin", entry["etag"], replaces=False).part
    part.write_bytes(bytes(5 * MIB))
    await bai("vfolder", "download", "data", "big.bin", "--to", tmp_path / "down", by="user")
    assert content(tmp_path / "down") == {"big.bin": bytes(5 * MIB) + big.read_bytes()[5 * MIB :]}


async def test_interrupted_download_of_several_files_is_resumed(
    api: Api, bai: Bai, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MAX_ATTEMPTS", 1)
    mine, down = tmp_path / "mine", tmp_path / "down"
    mine.mkdir()
    for name in "abcd":
        (mine / name).write_text(name)
    await bai("vfolder", "create", "data", by="user")
    await bai("vfolder", "upload", "data", mine, by="user")
    files = api.world.manager.folders.files
    original = files.download
    read: list[str] = []
    unavailable = {"c"}

    async def download(caller: Any, key: str, path: str) -> Any:
        if path[-1] in unavailable:
            raise Unavailable("the storage host does not respond")
        read.append(path[-1])
        return await original(caller, key, path)

    monkeypatch.setattr(files, "download", download)
    words = ("vfolder", "download", "data", "mine", "--to", down, "--parallel", "1")
    assert (await bai(*words, by="user")).code == 6
    assert read == ["a", "b"]
    # A file that the user has changed in the meantime is not replaced without --force.
    (down / "mine/a").write_text("other")
    refused = await bai(*words, by="user")
    assert (refused.code, "--force" in refused.stderr) == (1, True)
    assert (await bai(*words, "--force", by="user")).code == 6
    assert read == ["a", "b", "a"]
    unavailable.clear()
    done = (await bai(*words, "--json", by="user")).document
    assert [item["path"] for item in done["items"]] == [f"mine/{name}" for name in "abcd"]
    assert read == ["a", "b", "a", "c", "d"]
    assert content(down / "mine") == {name: name.encode() for name in "abcd"}
    # After a complete download, the command skips no files.
    assert (await bai(*words, by="user")).code == 1
    assert (await bai(*words, "--force", by="user")).code == 0
    assert read[5:] == ["a", "b", "c", "d"]


@pytest.fixture(params=["symbolic link", "hard link", "pipe", "file of another user"])
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Path], None]:
    """Return a function that creates a link, pipe or file at a path that ``bai`` would write."""

    def plant(place: Path) -> None:
        victim = tmp_path / "victim"
        victim.write_text("x")
        if request.param == "symbolic link":
            place.symlink_to(victim)
        elif request.param == "hard link":
            place.hardlink_to(victim)
        elif request.param == "pipe":
            os.mkfifo(place)
        elif os.geteuid() != 0:
            pytest.skip("only root can create files of another user")
        else:
            place.write_text("x")
            os.chown(place, 1, 1)

    return plant


def test_partial_file_that_is_not_a_regular_file_of_the_user_is_not_resumed(
    tmp_path: Path, planted: Callable[[Path], None]
) -> None:
    partial = PartialFile(tmp_path / "data", "etag", replaces=False)
    planted(partial.part)
    for use in (partial.open, partial.finish):
        with pytest.raises(BaiError, match="not a regular file of yours"):
            use()
    assert not (tmp_path / "data").exists()


def test_journal_that_is_not_a_regular_file_of_the_user_is_not_trusted(
    tmp_path: Path, planted: Callable[[Path], None]
) -> None:
    completed = CompletedFiles(tmp_path, ["data", "x"])
    part = tmp_path / "part"
    part.write_text("content")
    completed.add(tmp_path / "a", "etag", part)
    (journal,) = tmp_path.glob(".bai-*.done")
    journal.unlink()
    planted(journal)
    for use in (
        lambda: completed.contains(tmp_path / "a", "etag"),
        lambda: completed.add(tmp_path / "a", "etag", part),
    ):
        with pytest.raises(BaiError, match="not a regular file of yours"):
            use()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create files of another user")
def test_complete_file_of_another_user_is_downloaded_again(tmp_path: Path) -> None:
    completed = CompletedFiles(tmp_path, ["data", "x"])
    file = tmp_path / "a"
    file.write_text("content")
    completed.add(file, "etag", file)
    assert completed.contains(file, "etag")
    os.chown(file, 1, 1)
    assert not completed.contains(file, "etag")


def test_partial_file_that_is_gone_does_not_become_an_empty_target(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path / "data", "etag", replaces=False)
    with pytest.raises(FileNotFoundError):
        partial.finish()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", [".bai-0123.part", ".BAI-0123.Done", ".bai-x.done/file"])
async def test_file_cannot_take_the_place_of_a_partial_file(
    api: Api, bai: Bai, tmp_path: Path, name: str
) -> None:
    await bai("vfolder", "create", "data", by="user")
    client = await api.client("user")
    for path in (f"d/{name}", "d/other"):
        await client.call("PUT", "/vfolders/data/content", query={"path": path}, content=b"x")
    words = ("vfolder", "download", "data", "d", "--to", tmp_path)
    refused = await bai(*words, by="user")
    assert (refused.code, "--exclude" in refused.stderr) == (2, True)
    assert (await bai(*words, "--exclude", ".[bB][aA][iI]-*", by="user")).code == 0
    assert content(tmp_path / "d") == {"other": b"x"}


async def test_files_can_be_copied_moved_counted_and_removed(bai: Bai, files: Path) -> None:
    await bai("vfolder", "create", "data", by="user")
    await bai("vfolder", "upload", "data", files / "small.txt", by="user")
    for words in (
        ("mkdir", "data", "a/b"),
        ("mkdir", "data", "a/b", "-p"),
        ("cp", "data", "small.txt", "a/copy.txt"),
        ("mv", "data", "small.txt", "a/b/moved.txt"),
    ):
        assert (await bai("vfolder", *words, by="user")).code == 0
    assert (await bai("vfolder", "mkdir", "data", "a/b", by="user")).code == 1
    assert (await bai("vfolder", "rm", "data", "a", by="user")).code == 1
    used = (await bai("vfolder", "usage", "data", "--json", by="user")).document
    assert (used["files"], used["bytes"]) == (4, 10)
    assert (await bai("vfolder", "rm", "data", "a", "-r", by="user")).code == 0


async def test_invitee_can_accept_leave_and_decline(bai: Bai) -> None:
    await bai("vfolder", "create", "data", "--cloneable", by="user")
    made = (await bai("vfolder", "invite", "data", "user2", "--json", by="user")).document
    listed = (await bai("vfolder", "invitations", "--json", by="user2")).document
    assert [item["id"] for item in listed["items"]] == [made["id"]]
    assert (await bai("vfolder", "accept", made["id"], by="user2")).code == 0
    assert (await bai("vfolder", "clone", "data", "copy", by="user2")).code == 0
    assert (await bai("vfolder", "leave", "data", by="user2")).code == 0
    assert (await bai("vfolder", "info", "data", by="user2")).code == 4
    again = (await bai("vfolder", "invite", "data", "user2", "--json", by="user")).document
    assert (await bai("vfolder", "decline", again["id"], by="user2")).code == 0
    assert (await bai("vfolder", "withdraw", again["id"], by="user")).code == 1


async def test_admin_can_set_quotas_and_change_the_owner_of_a_folder(bai: Bai, api: Api) -> None:
    made = (await bai("vfolder", "create", "data", "--json", by="user")).document
    shown = await bai("vfolder", "hosts", by="user")
    assert "local" in shown.stdout and "ready" in shown.stdout
    scope = f"user:{made['owner_id']}"
    assert (await bai("vfolder", "quota", scope, "--limit", "1g", by="user")).code == 5
    done = await bai("vfolder", "quota", scope, "--limit", "1g", "--json")
    assert done.document["limit_bytes"] == 2**30
    listed = await bai("vfolder", "quota", by="user")
    assert scope in listed.stdout
    back = await bai("vfolder", "quota", scope, "--limit", "policy", "--json")
    assert back.document["override_bytes"] is None
    await bai("vfolder", "change-owner", made["id"], "user2")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert (await bai("vfolder", "info", "data", by="user2")).code == 0


@pytest.mark.parametrize("size", [128 * MIB, 1000 * MIB + 1, 7 * 2**30 - 3, 2**40 + 5])
def test_parts_of_an_upload_start_at_multiples_of_1_mib(size: int) -> None:
    parts = transfer.MultipartUpload(transfer.Upload(Path("f"), "f", size), (size, 0), None)
    assert 2 <= len(parts.starts) <= transfer.MAX_PARTS
    assert not any(start % MIB for start in parts.starts)
    assert sum(min(parts.starts.step, size - start) for start in parts.starts) == size


async def test_interrupted_parallel_upload_resumes_without_resending_parts(
    bai: Bai, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PART_BYTES", 3 * MIB)
    monkeypatch.setattr(transfer, "CHUNK_BYTES", MIB)
    monkeypatch.setattr(transfer, "MAX_ATTEMPTS", 1)
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(10 * MIB + 1))
    await bai("vfolder", "create", "data", by="user")
    uploads = api.world.manager.folders.uploads
    original, seen, failing = uploads.open_chunk, [], [6]

    async def send_or_fail(caller: Any, key: str, upload: str, offset: int, checksum: Any) -> Any:
        seen.append((upload, offset, checksum is not None))
        if len(seen) in failing:
            raise Unavailable("the storage host does not respond")
        return await original(caller, key, upload, offset, checksum)

    monkeypatch.setattr(uploads, "open_chunk", send_or_fail)
    words = ("vfolder", "upload", "data", big, "--to", "deep", "--checksum", "--parallel")
    assert (await bai(*words, 3, by="user")).code == 6
    client = await api.client("user")
    assert (await client.get("/vfolders/data/files"))["items"] == []
    before, failed = len(seen) - 1, seen[5]
    assert (await bai(*words, 2, by="user")).code == 0
    assert len({upload for upload, _, _ in seen}) == 4
    # There are 11 chunks. Only the rejected chunk, and the two others that were being sent at the
    # time, may be sent again.
    assert 11 <= len(seen) - 1 <= 11 + 2 and before < 11
    assert failed in seen[6:]
    assert all(has_checksum for _, _, has_checksum in seen)
    await bai("vfolder", "download", "data", "deep/big.bin", "--to", tmp_path / "down", by="user")
    assert content(tmp_path / "down") == {"big.bin": big.read_bytes()}
    # The parts are deleted. Only the record of the completed upload remains.
    root = api.world.manager.settings.storage_root
    assert [path.suffix for path in root.glob("user/*/.staging/*")] == [".json"]
    assert not list((tmp_path / "config/uploads").iterdir())


async def test_upload_fails_if_the_file_changes_meanwhile(
    bai: Bai, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PART_BYTES", MIB)
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(4 * MIB))
    await bai("vfolder", "create", "data", by="user")
    uploads = api.world.manager.folders.uploads
    original = uploads.open_chunk

    async def change_file_and_send(*arguments: Any) -> Any:
        os.utime(big, (1, 1))
        return await original(*arguments)

    monkeypatch.setattr(uploads, "open_chunk", change_file_and_send)
    done = await bai("vfolder", "upload", "data", big, "--parallel", 2, "--json", by="user")
    assert (done.code, "changed during the upload" in done.error["message"]) == (1, True)
