"""A simulated later release of bai-hub.

It is a copy of these packages with an additional migration, version 99.0.0 and the next agent
protocol.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import bai_services
from bai_services.core.cluster.protocol import PROTOCOL
from bai_services.db import schema

VERSION = "99.0.0"
PACKAGES = ("bai_auth", "bai_labext", "bai_services", "bai_spawner")
PROGRAMS = ("bai-hub", "jupyterhub-singleuser")
MIGRATION = '''"""A migration of the later version."""

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{before}"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("later", sa.Text()))
    op.execute("UPDATE sessions SET later = name")
    {failure}
'''


@dataclass(frozen=True)
class LaterVersion:
    """A virtual environment (``prefix``) with the later version in ``packages``."""

    prefix: Path
    packages: Path

    @property
    def program(self) -> Path:
        return self.prefix / "bin" / "bai-hub"

    @property
    def revision(self) -> str:
        return schema.next_revision()

    def write_migration(self, failure: str = "") -> None:
        """Write the migration. ``failure`` is an additional statement, which can make it fail."""
        text = MIGRATION.format(
            revision=self.revision, before=schema.revisions()[-1], failure=failure
        )
        folder = self.packages / "bai_services" / "db" / "migrations" / "versions"
        (folder / f"{self.revision}_later.py").write_text(text)


def install(prefix: Path) -> LaterVersion:
    """Install the later version in a new virtual environment with the requirements of the current
    one.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(prefix)}))
    # Python does not read .pth files in a folder that was added by a .pth file. An editable install
    # of bai-hub is therefore not visible in the new environment.
    (packages / "requirements.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    root = Path(bai_services.__file__).parents[1]
    for package in PACKAGES:
        # The copy keeps the times of files, so the compiled code of the scheduler stays valid.
        shutil.copytree(
            root / package, packages / package, ignore=shutil.ignore_patterns("frontend")
        )
    for name in PROGRAMS:
        text = (Path(sys.prefix) / "bin" / name).read_text()
        program = prefix / "bin" / name
        program.write_text(text.replace(f"#!{sys.executable}", f"#!{prefix / 'bin' / 'python'}", 1))
        program.chmod(0o755)
    (prefix / "share").symlink_to(Path(sys.prefix) / "share")
    version = LaterVersion(prefix, packages)
    _replace(packages / "bai_services/__init__.py", bai_services.__version__, VERSION)
    protocol = packages / "bai_services/core/cluster/protocol.py"
    _replace(protocol, f"PROTOCOL = {PROTOCOL}", f"PROTOCOL = {PROTOCOL + 1}")
    version.write_migration()
    return version


def _replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
