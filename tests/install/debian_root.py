"""A second machine for installations: a Debian root with Python, and without bai-hub.

Commands enter it with bubblewrap. It has its own files and the processes of this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.images import base_archive

CHECKOUT = Path(__file__).resolve().parents[2]
PREFIX = "/opt/bai-hub"
EXTRAS = "hub,agent,gateway,cli,session,node"
# uv needs the name servers, and the certificates of package indexes.
_NETWORK = (Path("/etc/resolv.conf"), Path("/etc/ssl/certs"))


@dataclass(frozen=True)
class DebianRoot:
    folder: Path
    # Folders of this machine that have the same path in the Debian root.
    shared: tuple[Path, ...]

    @property
    def program(self) -> Path:
        return Path(PREFIX, "bin", "bai-hub")

    def enter(self, *read_only: Path) -> list[str]:
        """Return a bubblewrap command without its final ``--``.

        ``read_only`` are further files of this machine with the same path in the Debian root.
        """
        words = ["bwrap", "--die-with-parent", "--bind", str(self.folder), "/"]
        words += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/etc/hosts", "/etc/hosts"]
        for path in self.shared:
            words += ["--bind", str(path), str(path)]
        for path in read_only:
            words += ["--ro-bind", str(path), str(path)]
        return words


def create(folder: Path, wheel: Path, *shared: Path) -> DebianRoot:
    """Unpack a Debian root in the new folder ``folder``, and install the wheel there.

    uv takes most of its requirements from its cache, to which ``make install`` has downloaded them.

    Parameters
    ----------
    shared
        Folders of this machine that the installation can read and write.

    Raises
    ------
    ComponentMissing
        If the Debian root cannot be built.
    """
    archive = base_archive()
    folder.mkdir()
    subprocess.run(["tar", "-C", folder, "-xf", archive], check=True)
    root = DebianRoot(folder, shared)
    uv = Path(sys.prefix, "bin", "uv")
    cache = Path(_output(uv, "cache", "dir").strip())
    _output(*root.enter(), "--", "python3", "-m", "venv", "--without-pip", PREFIX)
    installer = DebianRoot(folder, (cache,))  # uv writes locks into its cache
    _output(
        *installer.enter(uv, wheel, *_NETWORK),
        *("--", uv, "pip", "install", "--quiet", "--link-mode=copy"),
        *("--cache-dir", cache, "--python", f"{PREFIX}/bin/python"),
        f"bai-hub[{EXTRAS}] @ file://{wheel}",
    )
    _copy_compiled_scheduler(folder)
    return root


def _copy_compiled_scheduler(folder: Path) -> None:
    """Copy Numba's cache of this checkout, because the compilation takes a minute of CPU time.

    Numba uses an entry only if the source has the same size and time of change.
    """
    (packages,) = (folder / PREFIX[1:] / "lib").glob("python*/site-packages")
    scheduling = CHECKOUT / "bai_services/core/scheduling"
    for source in scheduling.rglob("*.py"):
        shutil.copystat(source, packages / source.relative_to(CHECKOUT))
    for entry in scheduling.rglob("*.nb[ci]"):
        target = packages / entry.relative_to(CHECKOUT)
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(entry, target)


def _output(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
