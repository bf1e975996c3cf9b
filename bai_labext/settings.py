"""Settings of a session's Jupyter server: apps, home, and no work that slows the start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bai_labext.apps import apps
from bai_labext.apps.arguments import Arguments
from bai_labext.sign_in_watch import CACHE_SECONDS

# Dicts here override the files with which packages enable themselves. Unused extensions would slow
# the start; for missing ones Jupyter logs a line and continues.
SERVER_EXTENSIONS = {
    "bai_labext": True,
    "jupyter_server_proxy": True,
    "jupyter_server_terminals": True,
    "jupyterlab": True,
    "jupyter_lsp": False,
    "nbclassic": False,
    # An app of its own, if the image contains it.
    "notebook": find_spec("notebook") is not None,
    "notebook_shim": False,
}


def configure(c: Any, environ: Mapping[str, str] | None = None) -> None:
    """Fill a Jupyter server's configuration ``c`` for a session."""
    env = os.environ if environ is None else environ
    # Jupyter's own setting for the start folder; the Hub's JUPYTERHUB_ROOT_DIR overrides it later.
    c.ServerApp.root_dir = apps.home(env)
    c.ServerApp.open_browser = False
    c.ServerApp.jpserver_extensions = SERVER_EXTENSIONS
    # Containers never run as root. The process engine does if the whole demo does.
    c.ServerApp.allow_root = os.geteuid() == 0 and env.get("BAI_SESSION_ENGINE") == "process"
    # Not a login shell: /etc/profile would remove the session's programs from PATH.
    c.ServerApp.terminado_settings = {"shell_command": [shell(env)]}
    # Trash does not work across mounts, and inside the home folder it uses up the quota unseen.
    c.FileContentsManager.delete_to_trash = False

    # A revoked token or cookie opens a session for this many seconds; the library's default is 300.
    c.HubAuth.cache_max_age = CACHE_SECONDS

    c.LabApp.news_url = None
    c.LabApp.check_for_updates_class = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
    c.LabApp.extension_manager = "readonly"
    c.LabApp.collaborative = False

    # Built by `make install`; a session without it has no panel.
    c.LabApp.extra_labextensions_path = [str(Path(__file__).parent / "labextension")]

    home = apps.home(env)
    c.ServerProxy.servers = apps.server_processes(apps.offers(env), Arguments(env, home), home)


def shell(environ: Mapping[str, str]) -> str:
    """Return the shell of terminals: the session's setting, else bash, else sh."""
    for candidate in (environ.get("SHELL", ""), "/bin/bash"):
        if os.access(candidate, os.X_OK):
            return candidate
    return "/bin/sh"
