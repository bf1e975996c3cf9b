"""Catalogue of the apps that a session can offer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bai_services.core.apps.catalogue import KNOWN_APPS, PORTS, AppKind, KnownApp
from bai_services.core.record_fields import fields_of

ICONS = Path(__file__).parent / "icons"


class ArgumentKind(StrEnum):
    FOLDER = "folder"  # created if it does not exist
    FILE = "file"  # must exist


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an app's start command.

    ``{folder}`` in ``default`` is replaced by the first writable folder that was requested for the
    session, or by the home folder if no such folder was requested. An argument without a default is
    required.
    """

    name: str
    title: str
    kind: ArgumentKind
    default: str = ""
    variable: str = ""
    """Name of an environment variable whose value overrides the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class App(KnownApp):
    """An app with the facts that are needed to start and stop it.

    If possible, an app listens on a Unix socket in a folder that only its user can open. A loopback
    port could be reached by every user of the host, without Jupyter's sign-in. In ``command``, the
    start replaces ``{python}``, ``{program}``, ``{home}``, ``{user}`` and the arguments; the proxy
    replaces ``{unix_socket}``, ``{port}`` and ``{base_url}``.
    """

    ready_path: str
    command: tuple[str, ...] = ()
    program: str = ""
    """A program that must be installed, or a Python module as ``python:NAME``; empty: none."""
    timeout_seconds: float = 30
    environment: Mapping[str, str] = field(default_factory=dict)
    initial_files: Mapping[str, str] = field(default_factory=dict)
    """Content by path below the home folder; each start creates the files that are missing."""
    arguments: tuple[Argument, ...] = ()
    needs_path_prefix: bool = False
    """Whether the app expects the full path of a request instead of the path inside the app."""
    uses_tcp: bool = False
    """Whether the app cannot listen on a Unix socket."""
    stops_when_idle: bool = False
    """Whether the app may be stopped while unused, because it runs no computation of the user."""
    quiet_bytes: int = 0
    """Websocket messages of at most this size are keepalives and do not count as use."""
    polled: str = ""
    """Regular expression of paths that an open page polls; these requests do not count as use."""

    @property
    def is_builtin(self) -> bool:
        return self.kind is AppKind.BUILTIN

    @property
    def icon_path(self) -> str:
        icon = ICONS / f"{self.name}.svg"
        return str(icon) if icon.is_file() else ""


def _known(name: str) -> dict[str, Any]:
    return fields_of(KNOWN_APPS[name])


# Hide the start page and the chat of VS Code.
_CODE_SETTINGS = """\
{
  "chat.disableAIFeatures": true,
  "workbench.secondarySideBar.defaultVisibility": "hidden",
  "workbench.startupEditor": "none"
}
"""

CATALOGUE: tuple[App, ...] = (
    App(
        **_known("jupyterlab"),
        ready_path="api/status",
    ),
    App(
        **_known("notebook"),
        program="python:notebook",
        ready_path="tree",
    ),
    App(
        **_known("terminal"),
        ready_path="api/terminals",
    ),
    App(
        **_known("filebrowser"),
        ready_path="api/contents",
    ),
    App(
        **_known("ssh"),
        program="sshd",
        ready_path="",
    ),
    App(
        **_known("vscode"),
        ready_path="vscode/healthz",
        program="code-server",
        command=(
            *("{program}", "--auth", "none", "--disable-telemetry", "--disable-update-check"),
            *("--disable-getting-started-override", "{home}", "--socket", "{unix_socket}"),
        ),
        initial_files={".local/share/code-server/User/settings.json": _CODE_SETTINGS},
        # Acknowledgements and keepalives consist only of a header of 13 bytes.
        quiet_bytes=13,
    ),
    App(
        **_known("tensorboard"),
        ready_path="tensorboard/data/environment",
        program="python:tensorboard",
        command=(
            *("{python}", "-m", "bai_labext.tensorboard_server", "--logdir", "{log_dir}"),
            *("--host", "unix://{unix_socket}", "--port", "0"),
            # The fast loader would start a second server, on a loopback port.
            "--load_fast=false",
        ),
        arguments=(
            Argument(
                name="log_dir",
                title="Log folder",
                kind=ArgumentKind.FOLDER,
                default="{folder}/logs",
                variable="BAI_TENSORBOARD_LOGDIR",
            ),
        ),
        stops_when_idle=True,
        polled=r"/data/.*",
    ),
    App(
        **_known("mlflow"),
        ready_path="mlflow/health",
        program="python:mlflow",
        command=(
            *("{python}", "-m", "mlflow", "server", "--workers", "1"),
            *("--uvicorn-opts", "--uds {unix_socket}"),
            *("--backend-store-uri", "sqlite:///{store}/mlflow.db"),
            *("--artifacts-destination", "{store}/artifacts"),
        ),
        # The first start takes 7 s of CPU time, and many disk reads if the page cache is cold.
        timeout_seconds=240,
        environment={
            # The job runner has eight processes and uses 2 GB; sessions do not need it.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            # The middleware checks the Host header, to protect publicly reachable ports. Here,
            # Jupyter authenticates every request.
            "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "true",
        },
        arguments=(
            Argument(
                name="store",
                title="Store",
                kind=ArgumentKind.FOLDER,
                default="{folder}/mlflow",
                variable="BAI_MLFLOW_STORE",
            ),
        ),
        stops_when_idle=True,
        polled=r"/(ajax-api|graphql|health).*",
    ),
    App(
        **_known("streamlit"),
        ready_path="streamlit/_stcore/health",
        program="python:streamlit",
        command=("{python}", "-m", "bai_labext.streamlit_server", "{script}", "{unix_socket}"),
        # The start imports pandas and Arrow, which takes long if the page cache is cold.
        timeout_seconds=120,
        environment={
            "STREAMLIT_SERVER_HEADLESS": "true",
            "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
        },
        arguments=(Argument("script", "Script", ArgumentKind.FILE),),
    ),
    App(
        **_known("gradio"),
        ready_path="gradio/",
        program="python:gradio",
        command=("{python}", "{script}"),
        timeout_seconds=120,
        environment={
            "GRADIO_SERVER_NAME": "127.0.0.1",
            "GRADIO_SERVER_PORT": "{port}",
            "GRADIO_ROOT_PATH": "{base_url}gradio",
            "GRADIO_ANALYTICS_ENABLED": "False",
        },
        arguments=(Argument("script", "Script", ArgumentKind.FILE),),
        uses_tcp=True,
    ),
    App(
        **_known("nni"),
        program="nnictl",
        ready_path="proxy/{port}/",
    ),
    App(
        **_known("rstudio"),
        ready_path="rstudio/",
        program="rserver",
        command=(
            *("{program}", "--server-daemonize=0", "--auth-none=1", "--www-frame-origin=same"),
            *("--www-verify-user-agent=0", "--www-root-path={base_url}rstudio/"),
            *("--www-socket={unix_socket}", "--server-user={user}"),
            *("--server-data-dir={home}/.local/share/rserver",),
            *("--secure-cookie-key-file={home}/.local/share/rserver.key",),
        ),
        polled=r"/events/get_events",
    ),
)

BY_NAME: Mapping[str, App] = {app.name: app for app in CATALOGUE}
# Apps by name, and by each of their aliases.
BY_NAME_OR_ALIAS: Mapping[str, App] = {
    name: app for app in CATALOGUE for name in (app.name, *app.aliases)
}
# Represents all ports that are opened by number (`proxy/PORT/`).
ANY_PORT = App(
    name="ports",
    title="Ports",
    category=PORTS,
    path="proxy/",
    ready_path="proxy/",
    kind=AppKind.PORT,
)
