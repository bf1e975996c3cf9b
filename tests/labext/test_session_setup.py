"""Session setup inside a session: variables and bootstrap scripts, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bai_labext.session_setup import add_to_sshd

SHOW = "import os, sys; from bai_labext import session_setup; session_setup.apply(os.environ); "


def run(folder: Path, scripts: list[dict[str, Any]], code: str) -> subprocess.CompletedProcess[str]:
    """Apply a setup in a new process, then run ``code`` there."""
    file = folder / "setup.json"
    file.write_text(json.dumps({"variables": {"TOKEN": "s3cret"}, "scripts": scripts}))
    return subprocess.run(
        [sys.executable, "-c", SHOW + code],
        env={"PATH": os.environ["PATH"], "BAI_SETUP_FILE": str(file), "OUT": str(folder / "out")},
        capture_output=True,
        text=True,
        timeout=60,
    )


def script(text: str, seconds: int = 20, origin: str = "ann") -> dict[str, Any]:
    return {"origin": origin, "script": text, "timeout_seconds": seconds}


def test_scripts_run_in_order_with_the_variables(tmp_path: Path) -> None:
    scripts = [
        script('echo "first $TOKEN" >>"$OUT"; echo shown', origin="project x"),
        script(
            "#!/usr/bin/env python3\nimport os\nopen(os.environ['OUT'], 'a').write('second\\n')"
        ),
    ]
    ended = run(tmp_path, scripts, "print(os.environ['TOKEN'], 'BAI_SETUP_FILE' in os.environ)")
    assert (ended.returncode, ended.stdout) == (0, "shown\ns3cret False\n")
    assert (tmp_path / "out").read_text() == "first s3cret\nsecond\n"


@pytest.mark.parametrize(
    ("given", "last_line"),
    [
        (script("echo broken >&2; exit 3"), "the bootstrap script of ann failed with exit code 3"),
        (script("kill -9 $$"), "the bootstrap script of ann failed with signal 9"),
        (
            script("sleep 60 & sleep 60", 1),
            "the bootstrap script of ann exceeded its time limit of 1 s",
        ),
        (script("#!/nowhere\n"), "the bootstrap script of ann cannot be started: "),
    ],
)
def test_a_failed_script_ends_the_server(
    tmp_path: Path, given: dict[str, Any], last_line: str
) -> None:
    ended = run(tmp_path, [given, script("touch $OUT")], "print('served')")
    assert ended.returncode == 190
    assert ended.stderr.splitlines()[-1].startswith(last_line)
    assert ended.stdout == "" and not (tmp_path / "out").exists()


def test_variables_are_added_to_the_existing_setenv_line_of_sshd(tmp_path: Path) -> None:
    config = tmp_path / "sshd_config"
    config.write_text('Port 2200\nSetEnv A="1" B="2"\n')
    add_to_sshd(config, {"TOKEN": "x y", "BROKEN": 'a"b', "LINES": "a\nb"})
    assert config.read_text() == 'Port 2200\nSetEnv TOKEN="x y" A="1" B="2"\n'
