"""Configuration of a session's Jupyter server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bai_labext import session_setup
from bai_labext.apps import apps
from bai_labext.apps.arguments import Arguments
from bai_labext.sign_in_watch import CACHE_TTL_SECONDS

# Packages enable their own server extensions through configuration files. Set them here, because
# unused extensions slow down the start. If an extension is not installed, Jupyter logs this and
# continues.
SERVER_EXTENSIONS = {
    "bai_labext": True,
    "jupyter_server_proxy": True,
    "jupyter_server_terminals": True,
    "jupyterlab": True,
    "jupyter_lsp": False,
    "nbclassic": False,
    # The app "notebook", if the image contains it.
    "notebook": find_spec("notebook") is not None,
    "notebook_shim": False,
}


def configure(c: Any, environ: Mapping[str, str] | None = None) -> None:
    """Set the configuration ``c`` of a Jupyter server for a session."""
    env = os.environ if environ is None else environ
    # The Hub's JUPYTERHUB_ROOT_DIR overrides this.
    c.ServerApp.root_dir = apps.home(env)
    c.ServerApp.open_browser = False
    c.ServerApp.jpserver_extensions = SERVER_EXTENSIONS
    # With the process engine, a session runs as root if the Hub runs as root and there is no user
    # namespace.
    c.ServerApp.allow_root = os.geteuid() == 0 and env.get("BAI_SESSION_ENGINE") == "process"
    # Not a login shell, because /etc/profile removes the session's programs from PATH.
    c.ServerApp.terminado_settings = {"shell_command": [shell(env)]}
    # Delete files immediately: the trash does not work across mounts, and in the home folder it
    # silently uses up the quota.
    c.FileContentsManager.delete_to_trash = False

    # A revoked token or cookie remains valid for at most this time; JupyterHub's default is 300 s.
    c.HubAuth.cache_max_age = CACHE_TTL_SECONDS

    c.LabApp.news_url = None
    c.LabApp.check_for_updates_class = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
    c.LabApp.extension_manager = "readonly"
    c.LabApp.collaborative = False

    # The session panel, built by `make install`. Without this folder, sessions have no panel.
    c.LabApp.extra_labextensions_path = [str(Path(__file__).parent / "labextension")]

    home = apps.home(env)
    c.ServerProxy.servers = apps.server_processes(apps.offers(env), Arguments(env, home), home)


def shell(environ: Mapping[str, str]) -> str:
    """Return the shell for terminals: ``SHELL`` of the session, else bash, else sh."""
    candidate = environ.get("SHELL", "")
    return candidate if os.access(candidate, os.X_OK) else session_setup.shell()
