"""Folders of kernels: creation, discovery after a restart, and removal of any content."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from bai_services.agent.folders import kernel_folders
from bai_services.agent.folders.kernel_folders import LOG_LIMIT_BYTES, Folders, KernelFolder
from bai_services.agent.kernels import Task
from bai_services.core.errors import InvalidRequest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def task(session_id: str | None = None) -> Task:
    item = {"id": "w", "kind": "prepare", "kernel_id": str(uuid.uuid4()), "user": "ann"}
    return Task.from_json(
        {**item, "session_id": str(uuid.uuid4()) if session_id is None else session_id}
    )


@pytest.mark.parametrize(
    "session_id",
    ["../x", "", "a/b", "x" * 36],
    ids=["path to the parent", "empty", "with a slash", "not a UUID"],
)
def test_session_ids_that_are_not_uuids_are_rejected(session_id: str) -> None:
    with pytest.raises(InvalidRequest):
        task(session_id)


def test_folder_creation_and_removal_are_idempotent(tmp_path: Path) -> None:
    folders, mine = Folders(tmp_path), task()
    home = folders.create(mine, None, None)
    (home / "file").write_text("kept")
    assert folders.create(mine, None, None) == home
    assert (home / "file").read_text() == "kept"
    assert folders.all() == [KernelFolder(mine.session_id, mine.kernel_id)]
    assert folders.remove(mine.session_id)
    assert folders.remove(mine.session_id)
    assert folders.all() == []


def test_home_and_log_of_a_session_that_continues_later_are_kept(tmp_path: Path) -> None:
    folders, mine = Folders(tmp_path), task()
    home = folders.create(mine, None, None)
    (home / "file").write_text("kept")
    folder = folders.path(mine.folder)
    for name in ("session.log", "exit.json", "devices.json"):
        (folder / name).write_text("{}")
    assert folders.keep_home(mine.folder)
    assert folders.keep_home(mine.folder)
    assert sorted(p.name for p in folder.iterdir()) == ["home", "kernel.json", "session.log"]
    assert Folders(tmp_path).all() == [KernelFolder(mine.session_id, mine.kernel_id, is_kept=True)]
    assert folders.create(mine, None, None) == home
    assert (home / "file").read_text() == "kept"
    assert not folders.all()[0].is_kept
    assert folders.remove(mine.folder)


def test_home_is_not_marked_as_kept_while_other_files_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, mine = Folders(tmp_path), task()
    folders.create(mine, None, None)
    (folders.path(mine.folder) / "mounts").mkdir()

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "I/O error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(kernel_folders, "remove_tree", fail)
        assert not folders.keep_home(mine.folder)
        assert not folders.all()[0].is_kept
    assert folders.keep_home(mine.folder)
    assert folders.all()[0].is_kept


def test_removal_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    folders, mine = Folders(tmp_path / "state"), task()
    home = folders.create(mine, None, None)
    (home / "link").symlink_to(outside)
    locked = home / "locked"
    locked.mkdir()
    (locked / "file").write_text("x")
    locked.chmod(0)
    assert folders.remove(mine.session_id)
    assert (outside / "precious").exists()


@as_root
def test_home_belongs_to_the_user_of_the_session(tmp_path: Path) -> None:
    home = Folders(tmp_path).create(task(), 1234, 2345)
    about = home.stat()
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (1234, 2345, 0o700)
    assert home.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "text, code",
    [
        pytest.param('{ "child-pid": 7 }\n', None, id="running"),
        pytest.param('{"child-pid": 7}\n{ "exit-code": 3 }\n', 3, id="ended"),
        pytest.param('{ "exit-code": 0 }\n{ "exit', 0, id="truncated exit file"),
        pytest.param("", None, id="empty exit file"),
    ],
)
def test_exit_code_is_read_from_the_kernel_folder(
    tmp_path: Path, text: str, code: int | None
) -> None:
    folders, mine = Folders(tmp_path), task()
    folders.create(mine, None, None)
    assert folders.exit_code(mine.session_id) is None
    (folders.path(mine.session_id) / "exit.json").write_text(text)
    assert folders.exit_code(mine.session_id) == code


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    folders, mine = Folders(tmp_path), task()
    folders.create(mine, None, None)
    assert folders.log(mine.session_id) is None
    long = b"x" * LOG_LIMIT_BYTES + "é\xff\n".encode("latin-1") + b"last"
    (folders.path(mine.session_id) / "session.log").write_bytes(long)
    text = folders.log(mine.session_id)
    assert text is not None
    assert len(text) <= LOG_LIMIT_BYTES
    assert text.endswith("last")


def test_folders_with_invalid_kernel_file_are_ignored(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    assert folders.all() == []
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"session_id": "d", "kernel_id": "k"}')):
        (tmp_path / "sessions" / name).mkdir(parents=True)
        (tmp_path / "sessions" / name / "kernel.json").write_text(text)
    assert folders.all() == []
