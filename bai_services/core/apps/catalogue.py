"""The apps that sessions can offer: titles and paths. ``bai_labext`` defines how they start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..cluster.image_labels import Protocol, ServicePort
from .shares import WHOLE_SESSION

PORTS = "Ports"
# Protocols in the service-ports label whose ports a browser can open.
OPENABLE = frozenset({Protocol.HTTP, Protocol.PREOPEN})
# Titles of ports with protocols that need a viewer program.
_TITLES = {Protocol.VNC: "Desktop (VNC)", Protocol.RDP: "Desktop (RDP)"}


class AppKind(StrEnum):
    BUILTIN = "builtin"  # served by the Jupyter server itself
    PROCESS = "process"  # a process that is started at the first request
    PORT = "port"  # a port; the platform does not start the program that listens on it
    TCP = "tcp"  # a protocol other than HTTP, reached through a tunnel


@dataclass(frozen=True, slots=True)
class KnownApp:
    """An app; its URL is ``path`` below the URL of the session."""

    name: str
    title: str
    category: str
    path: str
    kind: AppKind = AppKind.PROCESS
    port: int = 0
    """Default port of an app of the kind ``AppKind.PORT``; 0 for other kinds."""
    aliases: tuple[str, ...] = ()
    """Other names of the app in the service-port labels of images."""


@dataclass(frozen=True, slots=True)
class SessionApp:
    """An app that a session offers, with the fields of the REST API.

    ``is_shareable``: whether the app can be shared. Such an app uses HTTP and does not give access
    to the whole session. ``port``: the port on which the app listens in the session, or None if the
    app has no fixed port.
    """

    name: str
    title: str
    category: str
    kind: AppKind
    path: str
    is_shareable: bool
    port: int | None = None


_NOTEBOOKS, _TOOLS, _APPS, _UTILITIES = "Notebook", "Development", "Apps", "Utilities"

_KNOWN = (
    KnownApp("jupyterlab", "JupyterLab", _NOTEBOOKS, "lab", AppKind.BUILTIN),
    KnownApp(
        "notebook", "Jupyter Notebook", _NOTEBOOKS, "tree", AppKind.BUILTIN, aliases=("jupyter",)
    ),
    KnownApp("terminal", "Terminal", _UTILITIES, "lab", AppKind.BUILTIN, aliases=("ttyd",)),
    KnownApp("filebrowser", "File browser", _UTILITIES, "lab/tree", AppKind.BUILTIN),
    KnownApp("ssh", "SSH and SFTP", _UTILITIES, "", AppKind.TCP, aliases=("sshd", "sftp", "sftpd")),
    # The editor on the user's computer connects by SSH.
    KnownApp(
        "vscode-desktop",
        "VS Code (desktop)",
        _TOOLS,
        "",
        AppKind.TCP,
        aliases=("ssh", "sshd", "sftp", "sftpd"),
    ),
    KnownApp("vscode", "VS Code", _TOOLS, "vscode/", aliases=("code-server",)),
    KnownApp("tensorboard", "TensorBoard", _APPS, "tensorboard/"),
    KnownApp("mlflow", "MLflow", _APPS, "mlflow/", aliases=("mlflow-ui",)),
    KnownApp("streamlit", "Streamlit", _APPS, "streamlit/"),
    KnownApp("gradio", "Gradio", _APPS, "gradio/"),
    KnownApp("nni", "NNI", _APPS, "proxy/{port}/", AppKind.PORT, port=8080, aliases=("nniboard",)),
    KnownApp("digits", "DIGITS", _APPS, "proxy/{port}/", AppKind.PORT, port=5000),
    KnownApp("rstudio", "RStudio", _TOOLS, "rstudio/"),
)
KNOWN_APPS: Mapping[str, KnownApp] = {app.name: app for app in _KNOWN}
_BY_NAME_OR_ALIAS: Mapping[str, KnownApp] = {
    name: app for app in _KNOWN for name in (app.name, *app.aliases)
}
# Part of every Jupyter server, so images do not have to declare them.
_ALWAYS_OFFERED = ("jupyterlab", "terminal", "filebrowser")


def apps_of(declared: Sequence[ServicePort], preopened: Iterable[int]) -> list[SessionApp]:
    """Return the apps of a session: first those without a port, in the order of the catalogue, then
    one app per port.

    ``declared`` is the service-ports label of the image, ``preopened`` the ports that the session
    requested.
    """
    names = {service.name for service in declared}
    offered = [
        app
        for app in _KNOWN
        if app.kind is not AppKind.PORT
        and (app.name in _ALWAYS_OFFERED or names & {app.name, *app.aliases})
    ]
    apps = [
        SessionApp(a.name, a.title, a.category, a.kind, a.path, is_shareable=_is_shareable(a))
        for a in offered
    ]
    ports: dict[int, SessionApp] = {}
    for service in declared:
        known = _BY_NAME_OR_ALIAS.get(service.name)
        if known and known.kind is not AppKind.PORT:
            continue
        for number in service.ports:
            name = service.name if len(service.ports) == 1 else f"{service.name}-{number}"
            if service.protocol in OPENABLE:
                ports[number] = _port_app(name, known.title if known else name, number)
            else:
                title = _TITLES.get(service.protocol, name)
                ports[number] = SessionApp(name, title, PORTS, AppKind.TCP, "", False, number)
    for number in preopened:
        ports.setdefault(number, _port_app(f"port-{number}", f"Port {number}", number))
    return [*apps, *ports.values()]


def _port_app(name: str, title: str, number: int) -> SessionApp:
    return SessionApp(name, title, PORTS, AppKind.PORT, f"proxy/{number}/", True, number)


def _is_shareable(app: KnownApp) -> bool:
    return app.name not in WHOLE_SESSION and app.kind is not AppKind.TCP
