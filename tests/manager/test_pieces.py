"""Chunks of any size are written in their order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bai_services.manager.folders.write_buffer import CHUNK_BYTES, WriteBuffer
from tests.storage.test_host import fresh_location, host_at


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([1], id="a byte"),
        pytest.param([CHUNK_BYTES] * 3, id="pieces"),
        pytest.param([CHUNK_BYTES - 1, 2, CHUNK_BYTES * 3, 1, CHUNK_BYTES + 1, 5], id="odd"),
        pytest.param([random.Random(7).randrange(1, 2**19) for _ in range(60)], id="chunks"),
    ],
)
async def test_chunks_of_any_size(tmp_path: Path, sizes: list[int]) -> None:
    storage, location = host_at(tmp_path), fresh_location()
    await storage.start()
    await storage.create(location)
    writer = await storage.writer(location)
    pieces, source = WriteBuffer(storage, writer), random.Random(1)
    sent = [source.randbytes(size) for size in sizes]
    for chunk in sent:
        await pieces.write(chunk)
    await pieces.flush()
    assert writer.path.read_bytes() == b"".join(sent)
    assert writer.size == sum(sizes)
    writer.close()
    await storage.stop()
