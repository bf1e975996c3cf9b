"""The wheel, installed in a new virtual environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `make wheel` builds."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [ROOT / "scripts/wheel", folder], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a new environment with the wheel.

    The requirements are those of the development environment: to install them again would take
    minutes. The editable installation of this checkout is not visible there.
    """
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    requirements = sysconfig.get_path("purelib")
    # Python searches a path in a .pth file, but does not read .pth files in it. Therefore an
    # editable install of bai-hub is not visible here.
    (packages / "requirements.pth").write_text(f"{requirements}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        + ["--no-deps", "--no-index", "--prefix", str(venv), "--ignore-installed", str(wheel)],
        check=True,
        timeout=120,
    )
    programs = venv / "bin"
    for script in programs.glob("bai*"):
        text = script.read_text()
        script.write_text(text.replace(f"#!{sys.executable}", f"#!{programs / 'python'}", 1))
    # Link JupyterLab's files, which it searches for in its own environment.
    (venv / "share").mkdir(exist_ok=True)
    (venv / "share" / "jupyter").symlink_to(Path(sys.prefix) / "share" / "jupyter")
    (programs / "jupyterhub-singleuser").symlink_to(Path(sys.prefix) / "bin/jupyterhub-singleuser")
    return programs
