"""Project quotas, tested on any kernel.

A library loaded with LD_PRELOAD replaces ioctl and quotactl: it decodes their arguments with the
kernel's headers. On a kernel with project quotas, test_backends.py also tests these backends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.skip import skip_or_fail

SOURCE = Path(__file__).parent / "quota_calls.c"
MIB = 2**20

SCRIPT = """
import sys
from pathlib import Path
from bai_services.storage.base import Capability
from bai_services.storage.backends.filesystem import filesystem_of
from bai_services.storage.backends.project_quota import Ext4Backend, XfsBackend, project_of

root = Path(sys.argv[1])
kind = {"xfs": XfsBackend, "ext4": Ext4Backend}[sys.argv[2]]
backend = type("Here", (kind,), {"filesystem": filesystem_of(root)})(root)
assert {Capability.QUOTA, Capability.FAST_USAGE} <= backend.capabilities()
one, other = root / "user/one", root / "user/other"
for scope in (one, other, one):
    backend.create(scope)
assert project_of(one) != project_of(other)
assert backend.quota(one) is None
backend.set_quota(one, 50 * 2**20 + 1)
backend.set_quota(other, 0)
print(backend.quota(one), backend.quota(other), backend.usage(one), project_of(one))
backend.set_quota(one, None)
assert backend.quota(one) is None
"""


@pytest.fixture(scope="module")
def quota_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library; without a C compiler, skip the test or fail (see `skip_or_fail`)."""
    if shutil.which("gcc") is None:
        skip_or_fail("gcc", "it is not installed")
    library = tmp_path_factory.mktemp("quota") / "quota_calls.so"
    words = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_kernel_receives_the_expected_structures(
    quota_library: Path, tmp_path: Path, kind: str
) -> None:
    calls = tmp_path / "calls"
    environ = {
        **os.environ,
        "LD_PRELOAD": str(quota_library),
        "QUOTA_CALLS": str(calls),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    words = [sys.executable, "-c", SCRIPT, str(tmp_path), kind]
    done = subprocess.run(words, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    limit, smallest_limit, used, project = map(int, done.stdout.split())
    # Limits are rounded up to blocks of 1024 bytes; 0 becomes one block, as 0 would mean no limit.
    assert (limit, smallest_limit, used) == (50 * MIB + 1024, 1024, 123456789)
    assert project >= 2**20
    recorded = calls.read_text().splitlines()
    assert f"FS_IOC_FSSETXATTR projid={project} inherits=1" in recorded
    assert [line for line in recorded if line.startswith(f"Q_SETQUOTA id={project} ")] == [
        f"Q_SETQUOTA id={project} limits_only=1 hard={50 * 1024 + 1} soft=0",
        f"Q_SETQUOTA id={project} limits_only=1 hard=0 soft=0",
    ]
