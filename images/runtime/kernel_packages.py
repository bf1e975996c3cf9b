"""Install the packages of the notebook kernel for other Python versions, in /opt/bai/kernels.

Runs in the build of the runtime image. Only wheels are used, so nothing is compiled.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path("/opt/bai/kernels")
GLIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_26", "manylinux_2_28")
MUSL = ("musllinux_1_1", "musllinux_1_2")
# The debugger of JupyterLab is half of the size, and the kernel works without it.
UNUSED = ("debugpy", "bin", "share", "__pycache__")


def main(versions: list[str]) -> None:
    for libc, platforms in (("glibc", GLIBC), ("musl", MUSL)):
        for version in versions:
            target = FOLDER / f"{libc}-{version}"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
            command += ["--no-cache-dir", "--disable-pip-version-check", "--only-binary=:all:"]
            command += [f"--platform={name}_{platform.machine()}" for name in platforms]
            command += [f"--python-version={version}", "--implementation=cp"]
            subprocess.run([*command, "--target", str(target), "ipykernel"], check=True)
            for name in UNUSED:
                shutil.rmtree(target / name, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
