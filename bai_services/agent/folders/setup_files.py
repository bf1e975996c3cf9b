"""Files of a session's setup: dotfiles in the home, and the file with variables and scripts.

The agent may run as root, and processes of the session's user can write to the home, so no function
follows a symbolic link there. All functions block.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bai_services.core.sessions.setup import SessionSetup, SetupFile

log = logging.getLogger(__name__)

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = ".bai-new-dotfile"


def write_dotfiles(
    home: Path, files: Iterable[SetupFile], uid: int | None, gid: int | None
) -> None:
    """Write dotfiles into the home of a session, with this owner; replace existing files."""
    root = os.open(home, _DIRECTORY)
    try:
        for file in files:
            try:
                _write(root, file, uid, gid)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                # There is a folder or a symbolic link at this path, or another attempt is writing
                # the file. The session can start without the file.
                log.warning("dotfile %s was not written: %s", file.path, error.strerror)
    finally:
        os.close(root)


def write_setup_file(path: Path, setup: SessionSetup, uid: int | None, gid: int | None) -> None:
    """Write the variables and scripts of a session; only its user can read the file.

    If this process may not change the owner, every user can read the file. Only the user of this
    process can enter the parent folder.
    """
    content = setup.to_json()
    data = {"variables": content["variables"], "scripts": content["scripts"]}
    path.unlink(missing_ok=True)
    descriptor = os.open(path, _NEW_FILE, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(data, file)
        if not _set_owner(descriptor, uid, gid):
            os.fchmod(descriptor, 0o644)


def _write(root: int, file: SetupFile, uid: int | None, gid: int | None) -> None:
    *parents, name = file.path.split("/")
    directory = os.dup(root)
    try:
        for parent in parents:
            with suppress(FileExistsError):
                os.mkdir(parent, 0o700, dir_fd=directory)
            below = os.open(parent, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
            _set_owner(directory, uid, gid)
        with suppress(FileNotFoundError):
            os.unlink(_TEMPORARY, dir_fd=directory)
        descriptor = os.open(_TEMPORARY, _NEW_FILE, 0o600, dir_fd=directory)
        with os.fdopen(descriptor, "w", newline="") as output:
            output.write(file.content)
            is_owned = _set_owner(descriptor, uid, gid)
            # If the owner cannot be changed, all users can already write to the home; make the file
            # readable for them.
            os.fchmod(descriptor, file.permission if is_owned else file.permission | 0o044)
        os.rename(_TEMPORARY, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


def _set_owner(descriptor: int, uid: int | None, gid: int | None) -> bool:
    """Change the owner of an open file or directory; return False if this is not permitted."""
    if uid is None or gid is None:
        return True
    stat = os.fstat(descriptor)
    if (stat.st_uid, stat.st_gid) == (uid, gid):
        return True
    try:
        os.fchown(descriptor, uid, gid)
    except PermissionError:
        return False
    return True
