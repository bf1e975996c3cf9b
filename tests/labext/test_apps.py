"""The catalogue of apps, and the apps that a session offers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bai_labext.apps import apps
from bai_labext.apps.arguments import Arguments
from bai_labext.apps.catalogue import BY_NAME, CATALOGUE
from bai_services.core.apps.catalogue import AppKind

BUILTIN = {"jupyterlab", "terminal", "filebrowser"}


def create_program(folder: Path, name: str, first_line: str = "#!/bin/sh") -> Path:
    path = folder / name
    path.write_text(f"{first_line}\n")
    path.chmod(0o755)
    return path


def offered_names(environ: dict[str, str]) -> set[str]:
    return {offer.app.name for offer in apps.offers(environ) if offer.is_offered}


def test_names_are_unique_and_paths_are_relative() -> None:
    names = [name for app in CATALOGUE for name in (app.name, *app.aliases)]
    assert len(names) == len(set(names))
    assert not any(app.path.startswith("/") for app in CATALOGUE)


def test_every_process_app_has_an_icon_and_listens_on_a_unix_socket_if_it_can() -> None:
    process_apps = [app for app in CATALOGUE if app.kind is AppKind.PROCESS]
    names = ["vscode", "tensorboard", "mlflow", "streamlit", "gradio", "rstudio"]
    assert [app.name for app in process_apps] == names
    for app in process_apps:
        assert Path(app.icon_path).is_file(), app.name
        words = [*app.command, *app.environment.values()]
        address = "{port}" if app.uses_tcp else "{unix_socket}"
        assert any(address in word for word in words), app.name
    # Every user of the host can connect to a TCP port. Only Gradio listens on one: it does not
    # support Unix sockets.
    assert [app.name for app in process_apps if app.uses_tcp] == ["gradio"]


def test_an_app_without_its_program_is_refused_with_the_reason() -> None:
    offer = apps.offer(BY_NAME["vscode"], {"PATH": "/nonexistent"})
    assert not offer.is_offered
    assert offer.refusal == "VS Code is not installed in this session's image."
    arguments = Arguments({}, "/home/work")
    assert "vscode" not in apps.server_processes([offer], arguments, "/home/work")


def test_vs_code_is_started_by_the_program_on_the_path(tmp_path: Path) -> None:
    path = create_program(tmp_path, "code-server")
    offer = apps.offer(BY_NAME["vscode"], {"PATH": str(tmp_path)})
    command = apps.command_of(offer, {}, "/home/work")
    assert command[0] == str(path)
    assert command[-3:] == ["/home/work", "--socket", "{unix_socket}"]


def test_vs_code_starts_with_initial_settings_and_keeps_changed_settings(tmp_path: Path) -> None:
    home = tmp_path / "home"
    create_program(tmp_path, "code-server")
    offer = apps.offer(BY_NAME["vscode"], {"PATH": str(tmp_path)})
    start = apps.server_processes([offer], Arguments({}, str(home)), str(home))["vscode"]["command"]
    start()
    settings = home / ".local/share/code-server/User/settings.json"
    content = json.loads(settings.read_text())
    assert content["workbench.startupEditor"] == "none"
    assert content["chat.disableAIFeatures"] is True
    settings.write_text("{}")
    start()
    assert settings.read_text() == "{}"
    # A home folder that cannot be written causes no error.
    apps.create_initial_files(offer.app, "/proc/nonexistent")


def test_a_node_script_is_run_by_the_real_node(tmp_path: Path) -> None:
    path = create_program(tmp_path, "code-server", "#!/usr/bin/env node")
    node, script = apps.find_program("code-server", str(tmp_path))
    assert script == str(path)
    assert not Path(node).read_bytes().startswith(b"#!"), "a wrapper script forwards no signals"


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (None, BUILTIN | {"vscode", "tensorboard"}),
        ("", BUILTIN),
        ("tensorboard", BUILTIN | {"tensorboard"}),
        (" code-server , tensorboard", BUILTIN | {"vscode", "tensorboard"}),
        ("mlflow,unknown", BUILTIN),
    ],
)
def test_bai_apps_limits_process_apps_but_not_builtin_ones(
    tmp_path: Path, allowed: str | None, expected: set[str]
) -> None:
    create_program(tmp_path, "code-server")
    environ = {"PATH": str(tmp_path)}
    if allowed is not None:
        environ["BAI_APPS"] = allowed
    # Whether SSH and Notebook are installed depends on the machine that runs the tests.
    assert offered_names(environ) - {"ssh", "notebook"} == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/work"}, "/home/work/logs"),
        ({"HOME": "/home/work", "BAI_TENSORBOARD_LOGDIR": "/data/runs"}, "/data/runs"),
    ],
)
def test_the_log_folder_of_tensorboard_is_configurable(
    environ: dict[str, str], expected: str
) -> None:
    arguments = Arguments(environ, "/home/work")
    assert arguments.of(BY_NAME["tensorboard"]) == {"log_dir": expected}


def test_jupyter_server_proxy_accepts_the_settings(tmp_path: Path) -> None:
    from jupyter_server_proxy.config import ServerProxy

    create_program(tmp_path, "code-server")
    offers = apps.offers({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    arguments = Arguments({}, str(tmp_path))
    servers = ServerProxy(servers=apps.server_processes(offers, arguments, str(tmp_path))).servers
    assert set(servers) == {"vscode", "tensorboard"}
    assert servers["vscode"].launcher_entry.title == "VS Code"
    assert servers["vscode"].unix_socket is True
    # Braces in an argument are escaped: otherwise the proxy would replace them.
    arguments.choose(BY_NAME["tensorboard"], {"log_dir": "{runs}"})
    assert f"{tmp_path}/{{{{runs}}}}" in servers["tensorboard"].command()
