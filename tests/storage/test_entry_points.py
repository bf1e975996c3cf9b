"""A storage backend of another package, found by its entry point."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from bai_services.core.cluster.storage_checks import MARKER_FILE
from bai_services.core.errors import Unavailable
from bai_services.storage.backends.registry import ENTRY_POINTS, find_backend
from bai_services.storage.base import Capability, HostStatus, Location, Scope
from bai_services.storage.host import StorageHost
from tests.storage.test_backends import read
from tests.testbed.distribution import install

MODULE = """
import os
from pathlib import Path

from bai_services.storage.backends.backend import Backend
from bai_services.storage.base import Capability


class TapeBackend(Backend):
    def capabilities(self):
        return frozenset({Capability.QUOTA})

    def set_quota(self, scope, limit_bytes):
        (scope / ".limit").write_text(str(limit_bytes or ""))

    def quota(self, scope):
        return int((scope / ".limit").read_text() or 0) or None


class NotABackend:
    pass
"""


@pytest.fixture
def tape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "tape": "bai_tape:TapeBackend",
        "odd": "bai_tape:NotABackend",
        "broken": "bai_tape:Missing",
    }
    install(tmp_path / "packages", "bai_tape", MODULE, {ENTRY_POINTS: points}, monkeypatch)


@pytest.mark.usefixtures("tape")
async def test_backend_of_another_package_is_used(tmp_path: Path) -> None:
    host = StorageHost("archive", find_backend("tape")(tmp_path / "root"))
    await host.start()
    try:
        assert host.health.status is HostStatus.READY
        assert host.capabilities == {Capability.QUOTA}
        location = Location(Scope("user", str(uuid.uuid4())), str(uuid.uuid4()))
        await host.create(location)
        writer = await host.writer(location)
        await host.run(writer.write, b"kept")
        await host.commit(location, writer, "a/f", None)
        assert read(Path(host.source_path(location), "a/f")) == b"kept"
        await host.set_quota(location.scope, 1000)
        assert host.backend.quota(tmp_path.joinpath("root", *location.scope.parts)) == 1000
    finally:
        await host.stop()
    assert sorted(os.listdir(tmp_path / "root")) == [MARKER_FILE, "user"]


@pytest.mark.usefixtures("tape")
def test_entry_point_that_is_not_a_backend_is_rejected() -> None:
    with pytest.raises(Unavailable, match="'odd' of bai.storage is not a storage backend"):
        find_backend("odd")
    with pytest.raises(Unavailable, match="'broken' of bai.storage cannot be loaded: .*Missing"):
        find_backend("broken")
    with pytest.raises(Unavailable, match="available: broken, btrfs, .*, odd, tape, xfs"):
        find_backend("none")
