"""The apps that a session offers, from the label of its image and its requested ports."""

from __future__ import annotations

import pytest

from bai_services.core.apps.catalogue import apps_of
from bai_services.core.cluster.image_labels import parse_service_ports

BUILTIN = ["jupyterlab", "terminal", "filebrowser"]


@pytest.mark.parametrize(
    ("label", "preopened", "names", "paths"),
    [
        ("", [], [], []),
        ("vscode:http:8180,tensorboard:http:6006", [], ["vscode", "tensorboard"],
         ["vscode/", "tensorboard/"]),
        # The catalogue has this name as an alias of vscode.
        ("code-server:http:8180", [], ["vscode"], ["vscode/"]),
        # The catalogue does not contain this name: there is one app for each port in the label.
        ("triton:http:[8000,8001]", [], ["triton-8000", "triton-8001"],
         ["proxy/8000/", "proxy/8001/"]),
        ("dashboard:preopen:8787", [9000], ["dashboard", "port-9000"],
         ["proxy/8787/", "proxy/9000/"]),
        # A port in the label keeps its name, even if the user also requests it.
        ("dashboard:preopen:8787", [8787], ["dashboard"], ["proxy/8787/"]),
        # A browser cannot open the apps of the next two labels, so they have no path.
        ("desktop:vnc:5900,database:tcp:5432", [], ["desktop", "database"], ["", ""]),
        ("sshd:tcp:2222", [], ["ssh", "vscode-desktop"], ["", ""]),
        ("digits:http:5000", [], ["digits"], ["proxy/5000/"]),
    ],
)  # fmt: skip
def test_declared_apps_and_ports_are_offered(
    label: str, preopened: list[int], names: list[str], paths: list[str]
) -> None:
    apps = apps_of(parse_service_ports(label), preopened)
    offered = [app for app in apps if app.name not in BUILTIN]
    assert [app.name for app in apps if app.name in BUILTIN] == BUILTIN
    assert ([app.name for app in offered], [app.path for app in offered]) == (names, paths)
