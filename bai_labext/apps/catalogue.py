"""Catalogue of all apps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

ICONS = Path(__file__).parent / "icons"


class AppKind(StrEnum):
    BUILTIN = "builtin"  # served by the Jupyter server itself
    PROCESS = "process"  # started at the first request
    PORT = "port"  # whatever listens on a port of the session
    TCP = "tcp"  # not for browsers


class ArgumentKind(StrEnum):
    FOLDER = "folder"  # created if it does not exist
    FILE = "file"  # must exist


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an app's start command.

    ``{folder}`` in ``default`` is the first mounted folder that the session may write to, else the
    home folder. An argument without a default is required.
    """

    name: str
    title: str
    kind: ArgumentKind
    default: str = ""
    variable: str = ""
    """An environment variable whose value takes precedence over the default."""


@dataclass(frozen=True, slots=True)
class App:
    """One app of a session, reached at ``path`` below the session's own address.

    Where possible, an app listens on a unix socket in a folder that only its user can open: any
    other user of the same machine could reach a loopback port without Jupyter's sign-in.
    ``{python}``, ``{program}``, ``{home}`` and the arguments are filled in at the start,
    ``{unix_socket}``, ``{port}`` and ``{base_url}`` by the proxy.
    """

    name: str
    title: str
    category: str
    path: str
    ready_path: str
    kind: AppKind = AppKind.PROCESS
    command: tuple[str, ...] = ()
    program: str = ""
    """A program that must be on ``PATH``, or a module as ``python:NAME``."""
    timeout_seconds: float = 30
    environment: Mapping[str, str] = field(default_factory=dict)
    initial_files: Mapping[str, str] = field(default_factory=dict)
    """Initial files below the home folder, by path; created at a start if missing."""
    arguments: tuple[Argument, ...] = ()
    needs_path_prefix: bool = False
    """The app expects the full path of a request instead of the part below its own path."""
    uses_tcp: bool = False
    """It cannot listen on a unix socket."""
    port: int = 0
    """For an app that listens by itself: its port, unless a label names another."""
    stops_when_idle: bool = False
    """Nothing of the user's runs in it, so it may be stopped when unused."""
    quiet_bytes: int = 0
    """Websocket messages of up to this many bytes only keep a connection open."""
    polled: str = ""
    """Pattern of the paths that an open page requests by itself; they do not count as use."""
    aliases: tuple[str, ...] = ()
    """Other names for it in the service-port labels of images."""

    @property
    def is_builtin(self) -> bool:
        return self.kind is AppKind.BUILTIN

    @property
    def icon_path(self) -> str:
        icon = ICONS / f"{self.name}.svg"
        return str(icon) if icon.is_file() else ""


_NOTEBOOKS, _TOOLS, _APPS, _UTILITIES = "Notebook", "Development", "Apps", "Utilities"

# code-server opens with the files, not with its vendor's start page and chat.
_CODE_SETTINGS = """\
{
  "chat.disableAIFeatures": true,
  "workbench.secondarySideBar.defaultVisibility": "hidden",
  "workbench.startupEditor": "none"
}
"""

CATALOGUE: tuple[App, ...] = (
    App(
        name="jupyterlab",
        title="JupyterLab",
        category=_NOTEBOOKS,
        kind=AppKind.BUILTIN,
        path="lab",
        ready_path="api/status",
    ),
    App(
        name="notebook",
        title="Jupyter Notebook",
        category=_NOTEBOOKS,
        kind=AppKind.BUILTIN,
        program="python:notebook",
        path="tree",
        ready_path="tree",
        aliases=("jupyter",),
    ),
    App(
        name="terminal",
        title="Terminal",
        category=_UTILITIES,
        kind=AppKind.BUILTIN,
        path="lab",
        ready_path="api/terminals",
        aliases=("ttyd",),
    ),
    App(
        name="filebrowser",
        title="File browser",
        category=_UTILITIES,
        kind=AppKind.BUILTIN,
        path="lab/tree",
        ready_path="api/contents",
    ),
    App(
        name="ssh",
        title="SSH and SFTP",
        category=_UTILITIES,
        kind=AppKind.TCP,
        program="sshd",
        path="",
        ready_path="",
        aliases=("sshd", "sftp", "sftpd"),
    ),
    App(
        name="vscode",
        title="VS Code",
        category=_TOOLS,
        path="vscode/",
        ready_path="vscode/healthz",
        program="code-server",
        command=(
            *("{program}", "--auth", "none", "--disable-telemetry", "--disable-update-check"),
            *("--disable-getting-started-override", "{home}", "--socket", "{unix_socket}"),
        ),
        initial_files={".local/share/code-server/User/settings.json": _CODE_SETTINGS},
        # Size of its protocol's header: acknowledgements and keep-alives have no content after it.
        quiet_bytes=13,
        aliases=("code-server",),
    ),
    App(
        name="tensorboard",
        title="TensorBoard",
        category=_APPS,
        path="tensorboard/",
        ready_path="tensorboard/data/environment",
        program="python:tensorboard",
        command=(
            *("{python}", "-m", "bai_labext.tensorboard_server", "--logdir", "{log_dir}"),
            *("--host", "unix://{unix_socket}", "--port", "0"),
            # The fast loader is a second server, on a loopback port.
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
        name="mlflow",
        title="MLflow",
        category=_APPS,
        path="mlflow/",
        ready_path="mlflow/health",
        program="python:mlflow",
        command=(
            *("{python}", "-m", "mlflow", "server", "--workers", "1"),
            *("--uvicorn-opts", "--uds {unix_socket}"),
            *("--backend-store-uri", "sqlite:///{store}/mlflow.db"),
            *("--artifacts-destination", "{store}/artifacts"),
        ),
        # Seven seconds of CPU time at the first start, and many reads if the disk cache is cold.
        timeout_seconds=240,
        environment={
            # A job runner of eight processes and 2 GB that sessions do not need.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            # Meant for publicly reachable ports; here Jupyter authenticates every request.
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
        aliases=("mlflow-ui",),
    ),
    App(
        name="streamlit",
        title="Streamlit",
        category=_APPS,
        path="streamlit/",
        ready_path="streamlit/_stcore/health",
        program="python:streamlit",
        command=("{python}", "-m", "bai_labext.streamlit_server", "{script}", "{unix_socket}"),
        # Imports pandas and Arrow, possibly from a cold disk cache.
        timeout_seconds=120,
        environment={
            "STREAMLIT_SERVER_HEADLESS": "true",
            "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
        },
        arguments=(Argument("script", "Script", ArgumentKind.FILE),),
    ),
    App(
        name="gradio",
        title="Gradio",
        category=_APPS,
        path="gradio/",
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
        name="nni",
        title="NNI",
        category=_APPS,
        kind=AppKind.PORT,
        program="nnictl",
        path="proxy/{port}/",
        ready_path="proxy/{port}/",
        port=8080,
        aliases=("nniboard",),
    ),
    App(
        name="rstudio",
        title="RStudio",
        category=_TOOLS,
        path="rstudio/",
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
# Including the names used in labels.
BY_ANY_NAME: Mapping[str, App] = {
    name: app for app in CATALOGUE for name in (app.name, *app.aliases)
}
# Ports that are opened by number.
ANY_PORT = App("ports", "Ports", "Ports", "proxy/", "proxy/", AppKind.PORT)
