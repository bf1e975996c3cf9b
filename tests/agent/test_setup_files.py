"""Files of a session's setup: owner, permissions, and links that the session's user has planted."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bai_services.agent.folders.setup_files import write_dotfiles, write_setup_file
from bai_services.core.sessions.setup import Script, SessionSetup, SetupFile

UID, GID = os.getuid(), os.getgid()


def test_dotfiles_have_content_permission_and_owner(tmp_path: Path) -> None:
    files = [SetupFile(".vimrc", 0o644, "set nu\n"), SetupFile(".config/app/x", 0o600, "é\r\n")]
    for _ in range(2):  # a work item can be executed twice
        write_dotfiles(tmp_path, files, UID, GID)
    assert (tmp_path / ".vimrc").read_text() == "set nu\n"
    assert (tmp_path / ".config/app/x").read_bytes() == "é\r\n".encode()
    stats = [(tmp_path / name).stat() for name in (".vimrc", ".config/app/x", ".config/app")]
    assert [stat.st_mode & 0o777 for stat in stats] == [0o644, 0o600, 0o700]
    assert {(stat.st_uid, stat.st_gid) for stat in stats} == {(UID, GID)}
    assert sorted(os.listdir(tmp_path)) == [".config", ".vimrc"]


def test_no_link_in_the_home_is_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "victim").write_text("unchanged")
    (home / ".file").symlink_to(outside / "victim")
    (home / ".dir").symlink_to(outside)
    (home / ".bai-new-dotfile").symlink_to(outside / "victim")
    files = [SetupFile(".file", 0o644, "new"), SetupFile(".dir/victim", 0o644, "new")]
    write_dotfiles(home, files, UID, GID)
    assert (outside / "victim").read_text() == "unchanged"
    assert (home / ".file").read_text() == "new" and not (home / ".file").is_symlink()
    assert os.listdir(outside) == ["victim"]


def test_only_the_user_of_the_session_can_read_the_setup_file(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    setup = SessionSetup({"TOKEN": "s3cret"}, ("TOKEN",), (), (Script("ann", "true", 5),))
    for _ in range(2):
        write_setup_file(path, setup, UID, GID)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {
        "variables": {"TOKEN": "s3cret"},
        "scripts": [{"origin": "ann", "script": "true", "timeout_seconds": 5}],
    }
