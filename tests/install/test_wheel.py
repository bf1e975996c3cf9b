"""`make wheel`: the wheel contains the built front ends, the proxy and the migrations."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import bai_services
from bai_services.db import schema


def test_the_wheel_contains_what_a_checkout_builds(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "bai_services/webui/dist/index.html" in names
    assert any(name.startswith("bai_labext/labextension/bai-labext/static/") for name in names)
    assert (
        "bai_services/proxy/node_modules/configurable-http-proxy/bin/configurable-http-proxy"
        in names
    )
    for revision in schema.revisions():
        prefix = f"bai_services/db/migrations/versions/{revision}"
        assert any(name.startswith(prefix) for name in names), revision
    unwanted = ("/frontend/", "/.built", ".log", ".sqlite", ".pyc")
    assert not [name for name in names if any(part in name for part in unwanted)]


def test_the_installed_program_uses_the_wheel(installed: Path) -> None:
    done = subprocess.run([installed / "bai-hub", "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Set up and operate" in done.stdout
    code = "import bai_services; print(bai_services.__file__, bai_services.__version__)"
    shown = subprocess.run(
        [installed / "python", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    file, version = shown.stdout.split()
    assert file.startswith(str(installed.parent))
    assert version == bai_services.__version__
