"""The catalogue of apps, and what a session offers of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bai_labext.apps import apps
from bai_labext.apps.arguments import Arguments
from bai_labext.apps.catalogue import BY_NAME, CATALOGUE, AppKind

BUILTIN = {"jupyterlab", "terminal", "filebrowser"}


def program(folder: Path, name: str, first_line: str = "#!/bin/sh") -> Path:
    path = folder / name
    path.write_text(f"{first_line}\n")
    path.chmod(0o755)
    return path


def offered(environ: dict[str, str]) -> set[str]:
    return {offer.app.name for offer in apps.offers(environ) if offer.is_offered}


def test_names_and_addresses_are_unique_and_relative() -> None:
    names = [name for app in CATALOGUE for name in (app.name, *app.aliases)]
    assert len(names) == len(set(names))
    assert not any(app.path.startswith("/") for app in CATALOGUE)


def test_every_started_app_listens_where_only_its_owner_comes_and_has_an_icon() -> None:
    started = [app for app in CATALOGUE if app.kind is AppKind.PROCESS]
    names = ["vscode", "tensorboard", "mlflow", "streamlit", "gradio", "rstudio"]
    assert [app.name for app in started] == names
    for app in started:
        assert Path(app.icon_path).is_file(), app.name
        words = [*app.command, *app.environment.values()]
        place = "{port}" if app.uses_tcp else "{unix_socket}"
        assert any(place in word for word in words), app.name
    # Every account of the machine reaches a loopback port: only what cannot do otherwise.
    assert [app.name for app in started if app.uses_tcp] == ["gradio"]


def test_an_app_without_its_program_is_not_offered_and_says_so() -> None:
    offer = apps.offer(BY_NAME["vscode"], {"PATH": "/nonexistent"})
    assert not offer.is_offered
    assert offer.refusal == "VS Code is not installed in this session's image."
    arguments = Arguments({}, "/home/work")
    assert "vscode" not in apps.server_processes([offer], arguments, "/home/work")


def test_vs_code_is_started_by_the_program_on_the_path(tmp_path: Path) -> None:
    path = program(tmp_path, "code-server")
    offer = apps.offer(BY_NAME["vscode"], {"PATH": str(tmp_path)})
    command = apps.command_of(offer, {}, "/home/work")
    assert command[0] == str(path)
    assert command[-3:] == ["/home/work", "--socket", "{unix_socket}"]


def test_vs_code_starts_without_its_vendors_start_page_and_chat(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program(tmp_path, "code-server")
    offer = apps.offer(BY_NAME["vscode"], {"PATH": str(tmp_path)})
    start = apps.server_processes([offer], Arguments({}, str(home)), str(home))["vscode"]["command"]
    start()
    settings = home / ".local/share/code-server/User/settings.json"
    found = json.loads(settings.read_text())
    assert found["workbench.startupEditor"] == "none"
    assert found["chat.disableAIFeatures"] is True
    # What the user has set since stays.
    settings.write_text("{}")
    start()
    assert settings.read_text() == "{}"
    apps.create_initial_files(offer.app, "/proc/nonexistent")  # a start does not fail by it


def test_a_node_script_is_run_by_the_real_node(tmp_path: Path) -> None:
    path = program(tmp_path, "code-server", "#!/usr/bin/env node")
    node, script = apps.find_program("code-server", str(tmp_path))
    assert script == str(path)
    assert not Path(node).read_bytes().startswith(b"#!"), "a wrapper keeps signals to itself"


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
def test_bai_apps_filters_what_is_started_never_what_jupyter_serves(
    tmp_path: Path, allowed: str | None, expected: set[str]
) -> None:
    program(tmp_path, "code-server")
    environ = {"PATH": str(tmp_path)}
    if allowed is not None:
        environ["BAI_APPS"] = allowed
    # SSH and Notebook are where the machine of the tests has their programs.
    assert offered(environ) - {"ssh", "notebook"} == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/work"}, "/home/work/logs"),
        ({"HOME": "/home/work", "BAI_TENSORBOARD_LOGDIR": "/data/runs"}, "/data/runs"),
    ],
)
def test_tensorboard_watches_the_named_folder_or_logs_in_the_home(
    environ: dict[str, str], expected: str
) -> None:
    arguments = Arguments(environ, "/home/work")
    assert arguments.of(BY_NAME["tensorboard"]) == {"log_dir": expected}


def test_proxy_settings_are_what_jupyter_server_proxy_takes(tmp_path: Path) -> None:
    from jupyter_server_proxy.config import ServerProxy

    program(tmp_path, "code-server")
    offers = apps.offers({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    arguments = Arguments({}, str(tmp_path))
    servers = ServerProxy(servers=apps.server_processes(offers, arguments, str(tmp_path))).servers
    assert set(servers) == {"vscode", "tensorboard"}
    assert servers["vscode"].launcher_entry.title == "VS Code"
    assert servers["vscode"].unix_socket is True
    # A brace in what somebody chose is theirs, not a place that the proxy fills in.
    arguments.choose(BY_NAME["tensorboard"], {"log_dir": "{runs}"})
    assert f"{tmp_path}/{{{{runs}}}}" in servers["tensorboard"].command()
