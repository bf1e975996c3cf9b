"""The chunks of a command's output are parsed correctly, however the received data is split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.tunnel.channels import Channel, ChannelReader, pack
from bai_services.tunnel.frames import ProtocolError


@given(
    st.lists(st.tuples(st.sampled_from(Channel), st.binary(max_size=30)), max_size=10),
    st.lists(st.integers(0, 400), max_size=10),
)
def test_chunks_are_parsed_from_split_data(
    chunks: list[tuple[Channel, bytes]], cuts: list[int]
) -> None:
    data = b"".join(pack(*chunk) for chunk in chunks)
    positions = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = ChannelReader()
    received = [
        chunk
        for begin, end in zip(positions, positions[1:], strict=False)
        for chunk in reader.feed(data[begin:end])
    ]
    assert received == chunks


@pytest.mark.parametrize("content", [b"\x09\0\0\0\0", b"\x01\xff\xff\xff\xff"])
def test_invalid_chunk_is_rejected(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(ChannelReader().feed(content))
