"""Make /opt/bai independent of the rest of the image: its own interpreter, libraries and tools.

Runs as root in the build of the runtime image. Afterwards, /opt/bai works in any Linux image of the
same architecture, even without glibc, if it is mounted at the same path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

BAI = Path("/opt/bai")
ROOT = BAI / "rt"
LIBRARIES = ROOT / "lib"
# Programs of the operating system that sessions need, if the image has them.
PROGRAMS = ("sshd", "ssh-keygen", "rsync")
# sshd of OpenSSH 9.8 and later starts these.
SSHD_PARTS = ("/usr/lib/openssh/sshd-session", "/usr/lib/openssh/sshd-auth")
# Loaded with dlopen, so that ldd does not list it.
NEEDED_LATER = ("libgcc_s.so.1",)
# The static program, and the commands for which images without a shell need it.
BUSYBOX, APPLETS = "/bin/busybox", ("sh", "ls", "cat", "id", "env", "ps", "vi", "mkdir", "rm", "cp")
UNUSED_MODULES = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip",
    "site-packages", "dist-packages", "config-*",
)  # fmt: skip


def main() -> None:
    LIBRARIES.mkdir(parents=True)
    (ROOT / "bin").mkdir()
    _copy_python()
    programs = [ROOT / "bin" / _copy_program(path) for path in _programs()]
    _copy_busybox()
    executables = [ROOT / "bin" / f"python{_version()}", *programs]
    modules = [path for path in BAI.rglob("*.so*") if path.is_file() and not path.is_symlink()]
    interpreter = _output("patchelf", "--print-interpreter", str(executables[0]))
    for name, path in _libraries([*executables, *modules]).items():
        shutil.copy2(path, LIBRARIES / name)
    loader = LIBRARIES / Path(interpreter).name
    shutil.copy2(os.path.realpath(interpreter), loader)
    for path in executables:
        # RPATH instead of RUNPATH: it takes precedence over LD_LIBRARY_PATH of the image.
        _run("patchelf", "--set-interpreter", str(loader), str(path))
        _run("patchelf", "--force-rpath", "--set-rpath", str(LIBRARIES), str(path))
    for path in modules:
        # A module with its own RUNPATH does not inherit the RPATH of the executable.
        if own := _output("patchelf", "--print-rpath", str(path)):
            _run("patchelf", "--force-rpath", "--set-rpath", f"{own}:{LIBRARIES}", str(path))


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _copy_python() -> None:
    """Copy interpreter and standard library, and make them the base of the environment."""
    version = _version()
    shutil.copy2(os.path.realpath(sys.executable), ROOT / "bin" / f"python{version}")
    library = LIBRARIES / f"python{version}"
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=UNUSED_MODULES)
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    # "-s" and "-p" record the final path; a few modules of the standard library are not compilable.
    subprocess.run([*command, str(library)], check=False)
    for name in ("python", "python3", f"python{version}"):
        link = BAI / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"../rt/bin/python{version}")
    settings = {"home": str(ROOT / "bin"), "include-system-site-packages": "false"}
    settings["version"] = sys.version.split()[0]
    text = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (BAI / "pyvenv.cfg").write_text(text)


def _programs() -> Iterator[str]:
    path = f"{os.environ['PATH']}:/usr/sbin"
    found = (shutil.which(name, path=path) for name in PROGRAMS)
    yield from (path for path in found if path)
    yield from (path for path in SSHD_PARTS if os.path.exists(path))


def _copy_program(path: str) -> str:
    target = ROOT / "bin" / Path(path).name
    shutil.copy2(os.path.realpath(path), target)
    return target.name


def _copy_busybox() -> None:
    shutil.copy2(BUSYBOX, ROOT / "bin" / "busybox")
    (ROOT / "busybox").mkdir()
    for name in APPLETS:
        (ROOT / "busybox" / name).symlink_to("../bin/busybox")


def _libraries(files: list[Path]) -> dict[str, str]:
    """Return the path of each library outside /opt/bai that one of the files needs, by name."""
    found: dict[str, str] = {}
    for file in files:
        listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.MULTILINE):
            if not path.startswith(str(BAI)):
                found[name] = os.path.realpath(path)
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    for name in NEEDED_LATER:
        if match := re.search(rf"^\s*{re.escape(name)} .*=> (/\S+)", cache, re.MULTILINE):
            found.setdefault(name, os.path.realpath(match[1]))
    return found


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
