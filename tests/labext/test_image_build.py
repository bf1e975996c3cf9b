"""Image build script: package mirrors of the build machine, build context, apps and labels."""

from __future__ import annotations

import io
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from bai_labext.apps.catalogue import BY_NAME_OR_ALIAS
from bai_services.core.cluster.image_labels import parse_service_ports

BUILD = Path(__file__).resolve().parents[2] / "images" / "session" / "build"


@pytest.fixture(scope="module")
def build_script() -> ModuleType:
    loader = SourceFileLoader("session_image_build", str(BUILD))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_settings_contain_mirrors_but_no_local_folders(
    build_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///opt/more https://more.example/simple")
    files = build_script.client_files()
    assert files["pip.conf"].decode().splitlines() == [
        "[global]",
        "index-url = https://mirror.example/simple",
        "extra-index-url = https://more.example/simple",
    ]
    assert {"mirror.example", "more.example"} <= build_script.private_hosts(files)


def test_context_is_reproducible_and_contains_no_client_files(
    build_script: ModuleType,
) -> None:
    first, second = build_script.context({}), build_script.context({})
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        names = tar.getnames()
    assert "images/session/Dockerfile" in names and "bai_labext/apps/apps.py" in names
    assert not [name for name in names if name.startswith("images/session/client")]
    assert not [name for name in names if "__pycache__" in name or name.startswith(".")]


def test_excluded_apps_are_not_in_the_label(build_script: ModuleType) -> None:
    all_apps = build_script.settings(build_script.parse([]))
    assert all_apps["PYTHON_APPS"] == "notebook tensorboard mlflow streamlit gradio"
    facts = parse_service_ports(all_apps["APPS"])
    names = ["jupyterlab", "notebook", "tensorboard", "vscode", "mlflow", "streamlit", "gradio"]
    assert [port.name for port in facts] == names
    fewer = build_script.settings(
        build_script.parse(["--without", "mlflow", "-x", "vscode", "NAME"])
    )
    assert fewer["PYTHON_APPS"] == "notebook tensorboard streamlit gradio"
    assert fewer["WITH_VSCODE"] == "0"
    assert "vscode" not in fewer["APPS"] and "mlflow" not in fewer["APPS"]


def test_a_cuda_base_sets_the_minimum_cuda_version(build_script: ModuleType) -> None:
    settings = build_script.settings(build_script.parse(["--cuda", "12.6.3"]))
    assert settings["BASE"] == "nvidia/cuda:12.6.3-runtime-ubuntu24.04"
    assert (settings["ACCELERATORS"], settings["MIN_CUDA"]) == ("cuda", "12.6")
    own = build_script.settings(build_script.parse(["--cuda", "12.6.3", "--base", "mine/cuda:1"]))
    assert (own["BASE"], own["MIN_CUDA"]) == ("mine/cuda:1", "12.6")


def test_each_python_app_has_a_requirements_file(build_script: ModuleType) -> None:
    folder = BUILD.parent / "requirements"
    assert {path.stem for path in folder.iterdir()} == {"kernel", *build_script.PYTHON_APPS}
    assert build_script.PORTS.keys() <= BY_NAME_OR_ALIAS.keys()
