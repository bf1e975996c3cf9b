"""Image build script: package mirrors of the build machine, build context, apps and labels."""

from __future__ import annotations

import io
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bai_labext.apps.catalogue import BY_NAME_OR_ALIAS
from bai_services.core.cluster.image_labels import parse_service_ports

BUILD = Path(__file__).resolve().parents[2] / "images" / "session" / "build"


def script(name: str, path: Path) -> ModuleType:
    """Return a script without the suffix `.py` as a module."""
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def build_script() -> ModuleType:
    return script("session_image_build", BUILD)


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


def test_each_python_app_has_pinned_packages(build_script: ModuleType) -> None:
    versions = build_script.VERSIONS
    assert versions["apps"].keys() == build_script.PYTHON_APPS
    assert build_script.PORTS.keys() <= BY_NAME_OR_ALIAS.keys()
    for image in versions["images"].values():
        for settings in (image, image.get("cuda", {})):
            assert all("==" in package for package in settings.get("pip", ()))


def test_each_version_of_python_has_a_base_image(build_script: ModuleType) -> None:
    bases = {
        version: build_script.settings(build_script.parse(["--python", version]))["BASE"]
        for version in ("3.11", "3.12", "3.13")
    }
    assert all(f"python:{version}-" in base for version, base in bases.items())
    assert build_script.settings(build_script.parse([]))["BASE"] == bases["3.12"]


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    return script("image_matrix", BUILD.parents[1] / "matrix")


def test_changes_of_packages_are_reported(matrix: ModuleType) -> None:
    def sbom(*purls: str) -> dict[str, Any]:
        parts = [purl.removeprefix("pkg:").partition("@") for purl in purls]
        return {
            "components": [
                {"name": name.split("/")[-1], "version": version, "purl": f"pkg:{name}@{version}"}
                for name, _, version in parts
            ]
        }

    before = sbom("pkg:pypi/numpy@1.0", "pkg:deb/debian/curl@7.1", "pkg:npm/a@1", "pkg:npm/a@2")
    after = sbom("pkg:pypi/numpy@2.0", "pkg:pypi/curl@7.1", "pkg:npm/a@2", "pkg:npm/a@1")
    assert matrix.changes(matrix.packages_of(before), matrix.packages_of(after)) == [
        "- deb/curl 7.1",
        "+ pypi/curl 7.1",
        "~ pypi/numpy 1.0 -> 2.0",
    ]


def test_cuda_replaces_the_packages_of_an_image(
    matrix: ModuleType, build_script: ModuleType, tmp_path: Path
) -> None:
    versions = build_script.VERSIONS
    cpu = matrix.variant_arguments(versions, "pytorch", "minimal:1", cuda=False)
    cuda = matrix.variant_arguments(versions, "pytorch", "minimal:1", cuda=True)
    assert cpu["INDEX"].endswith("/cpu") and cuda["INDEX"] == ""
    assert cpu["SESSION"] == "minimal:1" and "torch==" in cuda["PIP"]
    own = tmp_path / "own.toml"
    own.write_text('[images.mine]\ndescription = "Mine"\npip = ["toolz==1.0.0"]\n')
    options = matrix.parse(["--images", str(own), "mine", "--python", "3.12"], versions)
    assert (options.images, options.python) == (["mine"], ["3.12"])
    for wrong in (["unknown"], ["--base", "debian:13"], ["--cuda", "12.6.3"]):
        with pytest.raises(SystemExit):
            matrix.parse(wrong, versions)
