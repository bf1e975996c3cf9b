"""``python -m bai_labext.image_probe``: print facts about the image of this container as JSON.

It runs without network, privileges and writable files, with the Python of the mounted parts. It
runs programs of the image, so its output is not trusted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/ash", "/bin/sh", "/usr/bin/sh")
PYTHON_PATHS = "/usr/local/bin:/usr/bin:/opt/conda/bin:/bin"
TIMEOUT_SECONDS = 10.0
MAX_OUTPUT_BYTES = 16 * 1024
MAX_FILE_BYTES = 64 * 1024
OLDEST = (3, 9)
FACTS = """
import importlib.util, json, platform, sys, sysconfig
names = "ipykernel", "jupyterlab"
found = {"has_" + name: importlib.util.find_spec(name) is not None for name in names}
soabi = sysconfig.get_config_var("SOABI") or ""
found["libc"] = "musl" if "musl" in soabi else "glibc"
found["python_version"] = platform.python_version()
found["numbers"] = list(sys.version_info[:2])
print(json.dumps(found))
"""


def main() -> None:
    facts = {
        "shell": next((path for path in SHELLS if os.access(path, os.X_OK)), ""),
        "passwd": _lines("/etc/passwd"),
        "group": _lines("/etc/group"),
    }
    print(json.dumps({**facts, **_python()}))


def _python() -> dict[str, Any]:
    """Return the facts of the first Python that can run notebooks, empty if no Python is found."""
    path = f"{os.environ.get('PATH', '')}:{PYTHON_PATHS}"
    for name in ("python3", "python", *(f"python3.{minor}" for minor in range(14, 8, -1))):
        program = shutil.which(name, path=path)
        facts = _facts_of(program) if program else None
        if facts is not None:
            return {"python": program, **facts}
    return {}


def _facts_of(program: str) -> dict[str, Any] | None:
    try:
        done = subprocess.run(
            [program, "-I", "-c", FACTS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
        )
        facts = json.loads(done.stdout[:MAX_OUTPUT_BYTES])
        is_new = tuple(facts.pop("numbers")) >= OLDEST
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError, KeyError, AttributeError):
        return None
    return facts if is_new else None


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_FILE_BYTES).splitlines()
    except OSError:
        return []


if __name__ == "__main__":
    main()
