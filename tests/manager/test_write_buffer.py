"""The write buffer writes chunks of any size in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bai_services.manager.folders.write_buffer import CHUNK_BYTES, WriteBuffer
from tests.storage.test_host import fresh_location, host_at


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([1], id="one byte"),
        pytest.param([CHUNK_BYTES] * 3, id="full chunks"),
        pytest.param(
            [CHUNK_BYTES - 1, 2, CHUNK_BYTES * 3, 1, CHUNK_BYTES + 1, 5],
            id="across chunk boundaries",
        ),
        pytest.param([random.Random(7).randrange(1, 2**19) for _ in range(60)], id="random sizes"),
    ],
)
async def test_chunks_are_written_in_order(tmp_path: Path, sizes: list[int]) -> None:
    storage, location = host_at(tmp_path), fresh_location()
    await storage.start()
    await storage.create(location)
    writer = await storage.writer(location)
    buffer, source = WriteBuffer(storage, writer), random.Random(1)
    sent = [source.randbytes(size) for size in sizes]
    for chunk in sent:
        await buffer.write(chunk)
    await buffer.flush()
    assert writer.path.read_bytes() == b"".join(sent)
    assert writer.size == sum(sizes)
    writer.close()
    await storage.stop()
