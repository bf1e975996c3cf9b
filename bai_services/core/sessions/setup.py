"""Session setups: variables, secrets, dotfiles and bootstrap scripts of users and projects.

A session gets the setup of its project, then the setup of its owner, then its own variables; later
values take precedence. Both bootstrap scripts run, the script of the project first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from ..accounts.roles import Role, roles_above
from ..errors import InvalidRequest
from ..folders.mounts import HOME
from ..user_input import shown
from .rules import check_environ

MAX_DOTFILES = 100
MAX_DOTFILES_BYTES = 64 * 1024
MAX_SCRIPT_BYTES = 64 * 1024
MAX_PATH_CHARACTERS = 255
MAX_PATH_PARTS = 8
DEFAULT_SCRIPT_SECONDS = 120
MAX_SCRIPT_SECONDS = 300
# Variables that identify the user of a session; programs fail with other values.
FIXED_VARIABLES = frozenset({"HOME", "USER", "LOGNAME", "PATH"})
# Paths that the session itself creates.
RESERVED_DOTFILES = frozenset(
    {".terminfo", ".jupyter", ".ssh", ".ssh/authorized_keys", ".local", ".config", ".bai"}
)
# A shorter secret would match text in most logs, so masking it would make logs unreadable.
MIN_MASKED_CHARACTERS = 4
# Maximum number of lines of secrets that are masked, the longest first, to limit the time per log.
MAX_MASKED_LINES = 500
MASK = "********"
# Path of the file with variables and scripts in the container.
SETUP_FILE = "/home/config/setup.json"
# Variable with the path of that file.
SETUP_FILE_VARIABLE = "BAI_SETUP_FILE"

_PART = re.compile(r"[A-Za-z0-9._@+-]+")
_PERMISSION = re.compile(r"[0-7]{3}")


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable. ``value`` is None if the reader may not see it.

    ``role`` is the role of the user who set it.
    """

    name: str
    value: str | None = field(repr=False)
    is_secret: bool
    changed_at: datetime
    role: Role


@dataclass(frozen=True, slots=True)
class Dotfile:
    """A file in the home of a session; ``path`` is relative to the home, ``permission`` octal."""

    path: str
    permission: str
    content: str = field(repr=False)
    changed_at: datetime
    role: Role


@dataclass(frozen=True, slots=True)
class BootstrapScript:
    """A script that runs once, before the session becomes RUNNING; empty: no script."""

    script: str
    timeout_seconds: int
    changed_at: datetime
    role: Role


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of one user or project."""

    variables: tuple[Variable, ...] = ()
    dotfiles: tuple[Dotfile, ...] = ()
    bootstrap: BootstrapScript | None = None

    def for_owner(self, role: Role) -> Setup:
        """Return those entries of a project's setup that apply to sessions of users with ``role``.

        Variables, files and scripts determine which code a session runs. Therefore an entry applies
        only to users whom its author may administer.
        """

        def applies(author: Role) -> bool:
            return role not in roles_above(author, "user.write")

        bootstrap = self.bootstrap
        return Setup(
            tuple(one for one in self.variables if applies(one.role)),
            tuple(one for one in self.dotfiles if applies(one.role)),
            bootstrap if bootstrap is not None and applies(bootstrap.role) else None,
        )


@dataclass(frozen=True, slots=True)
class SetupFile:
    """A dotfile to write; ``path`` is relative to the home."""

    path: str
    permission: int
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Script:
    """A bootstrap script to run; ``origin`` names its user or project."""

    origin: str
    script: str
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class SessionSetup:
    """The setup of one session, with the precedence applied, for its agent."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_names: tuple[str, ...] = ()
    files: tuple[SetupFile, ...] = ()
    scripts: tuple[Script, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.variables or self.files or self.scripts)

    @property
    def script_seconds(self) -> int:
        """The longest time that the scripts may take together."""
        return sum(script.timeout_seconds for script in self.scripts)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SessionSetup:
        """Parse the result of ``to_json``; raise KeyError, TypeError or ValueError if invalid."""
        return cls(
            variables={str(k): str(v) for k, v in data["variables"].items()},
            secret_names=tuple(map(str, data["secret_names"])),
            files=tuple(
                SetupFile(check_path(str(f["path"])), int(f["permission"]) & 0o777, f["content"])
                for f in data["files"]
            ),
            scripts=tuple(
                Script(str(s["origin"]), str(s["script"]), int(s["timeout_seconds"]))
                for s in data["scripts"]
            ),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "variables": dict(self.variables),
            "secret_names": list(self.secret_names),
            "files": [
                {"path": f.path, "permission": f.permission, "content": f.content}
                for f in self.files
            ],
            "scripts": [
                {"origin": s.origin, "script": s.script, "timeout_seconds": s.timeout_seconds}
                for s in self.scripts
            ],
        }


def combine(
    setups: Sequence[tuple[str, Setup]],
    environ: Mapping[str, str],
    secret_names: Collection[str],
    mount_paths: Iterable[str],
) -> SessionSetup:
    """Return the setup of a session from the setups of its project and owner.

    ``setups`` are pairs of an origin and its setup with decrypted values, in ascending precedence.
    ``environ`` is the environment in the session request; ``secret_names`` are its secret
    variables. The result contains the secret variables of ``environ``; its other variables are part
    of the launch plan. Dotfiles that a mount would hide are omitted.
    """
    variables: dict[str, Variable] = {}
    files: dict[str, Dotfile] = {}
    for _, setup in setups:
        variables.update((variable.name, variable) for variable in setup.variables)
        for dotfile in setup.dotfiles:
            for path in [path for path in files if _overlap(path, dotfile.path)]:
                del files[path]
            files[dotfile.path] = dotfile
    values = {
        name: variable.value or "" for name, variable in variables.items() if name not in environ
    }
    secrets = {name for name in values if variables[name].is_secret}
    own_secrets = {name: environ[name] for name in secret_names}
    mounted = [relative for path in mount_paths if (relative := _below_home(path))]
    return SessionSetup(
        variables={**values, **own_secrets},
        secret_names=tuple(sorted(secrets | own_secrets.keys())),
        files=tuple(
            SetupFile(path, int(one.permission, 8), one.content)
            for path, one in sorted(files.items())
            if not any(_overlap(path, mount) for mount in mounted)
        ),
        scripts=tuple(
            Script(origin, setup.bootstrap.script, setup.bootstrap.timeout_seconds)
            for origin, setup in setups
            if setup.bootstrap is not None
        ),
    )


def check_variables(variables: Iterable[Variable], values: Mapping[str, str]) -> None:
    """Check the variables of a user or project; ``values`` are the decrypted values by name.

    Raises
    ------
    InvalidRequest
        If a name is invalid, reserved or fixed, or the variables are too large (``check_environ``).
    """
    check_environ(values)
    for variable in variables:
        if variable.name in FIXED_VARIABLES:
            raise InvalidRequest(
                f"the session itself sets {variable.name}; a dotfile such as .bashrc can change it",
                field="name",
                variable=variable.name,
            )


def check_dotfiles(dotfiles: Sequence[Dotfile]) -> None:
    """Check the dotfiles of a user or project.

    Raises
    ------
    InvalidRequest
        If a path, permission or content is invalid, there are too many files, or two paths collide.
    """
    if len(dotfiles) > MAX_DOTFILES:
        raise InvalidRequest(f"at most {MAX_DOTFILES} dotfiles are allowed", field="path")
    for dotfile in dotfiles:
        check_path(dotfile.path)
        if _PERMISSION.fullmatch(dotfile.permission) is None:
            raise InvalidRequest(
                f"{shown(dotfile.permission)!r} is not a permission: use three octal digits, such "
                "as 644",
                field="permission",
            )
        if "\0" in dotfile.content:
            raise InvalidRequest("the content contains a NUL", field="content")
    for one in dotfiles:
        for other in dotfiles:
            if other is not one and _overlap(one.path, other.path):
                raise InvalidRequest(
                    f"{one.path} and {other.path} cannot both exist: one is inside the other",
                    field="path",
                )
    size = sum(len(f.content.encode(errors="replace")) + len(f.path) for f in dotfiles)
    if size > MAX_DOTFILES_BYTES:
        raise InvalidRequest(
            f"the dotfiles have {size} bytes in total; at most {MAX_DOTFILES_BYTES} are allowed",
            field="content",
        )


def check_path(path: str) -> str:
    """Return the path of a dotfile if it is valid.

    Raises
    ------
    InvalidRequest
        If the path is not below the home, does not begin with a dot, is reserved, or contains
        invalid characters.
    """
    parts = path.split("/")
    reason = ""
    if len(path) > MAX_PATH_CHARACTERS or len(parts) > MAX_PATH_PARTS:
        reason = f"it has more than {MAX_PATH_CHARACTERS} characters or {MAX_PATH_PARTS} parts"
    elif any(part in (".", "..") or _PART.fullmatch(part) is None for part in parts):
        reason = "use letters a-z and A-Z, digits and . _ @ + - in each name, without .."
    elif not path.startswith("."):
        reason = "it must begin with a dot"
    elif path in RESERVED_DOTFILES:
        reason = "the session itself creates it"
    if reason:
        raise InvalidRequest(
            f"{shown(path)!r} cannot be the path of a dotfile: {reason}", field="path"
        )
    return path


def check_script(script: str, timeout_seconds: int) -> None:
    """Check a bootstrap script.

    Raises
    ------
    InvalidRequest
        If the script is empty, too large or contains a NUL, or the time limit is out of range.
    """
    size = len(script.encode(errors="replace"))
    if not script.strip() or "\0" in script or size > MAX_SCRIPT_BYTES:
        raise InvalidRequest(
            f"a bootstrap script must have 1 to {MAX_SCRIPT_BYTES} bytes and no NUL", field="script"
        )
    if not 1 <= timeout_seconds <= MAX_SCRIPT_SECONDS:
        raise InvalidRequest(
            f"timeout_seconds must be 1 to {MAX_SCRIPT_SECONDS}, not {timeout_seconds}",
            field="timeout_seconds",
        )


def check_mounts(dotfiles: Iterable[Dotfile], mount_paths: Iterable[str]) -> None:
    """Check that no mount of a session collides with a dotfile.

    Raises
    ------
    InvalidRequest
        If a mount would hide a dotfile, or a dotfile would hide a mount.
    """
    relative = [(path, below) for path in mount_paths if (below := _below_home(path))]
    for dotfile in dotfiles:
        for path, below in relative:
            if _overlap(dotfile.path, below):
                raise InvalidRequest(
                    f"the folder at {path} collides with the dotfile {dotfile.path}; mount it "
                    "elsewhere or delete the dotfile",
                    field="mounts",
                    path=path,
                )


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with the values of secrets replaced.

    A value with several lines is masked line by line, because the lines of a log have timestamps.
    Lines with fewer than ``MIN_MASKED_CHARACTERS`` characters, and lines after the longest
    ``MAX_MASKED_LINES``, are not masked.
    """
    lines = {line.strip() for value in secrets for line in value.splitlines()}
    for line in sorted(lines, key=lambda line: (-len(line), line))[:MAX_MASKED_LINES]:
        if len(line) >= MIN_MASKED_CHARACTERS:
            text = text.replace(line, MASK)
    return text


def _overlap(one: str, other: str) -> bool:
    """Return whether two paths are equal, or one is inside the other."""
    shorter, longer = sorted((one, other), key=len)
    return longer == shorter or longer.startswith(f"{shorter}/")


def _below_home(path: str) -> str:
    """Return the path relative to the home; empty if it is not below the home."""
    pure = PurePosixPath(path)
    return str(pure.relative_to(HOME)) if pure.is_relative_to(HOME) and path != HOME else ""
