"""The pieces of a command's output, however they are cut on their way."""

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
def test_pieces_come_as_they_were_sent(sent: list[tuple[Channel, bytes]], cuts: list[int]) -> None:
    content = b"".join(pack(*piece) for piece in sent)
    places = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    pieces = ChannelReader()
    came = [
        piece
        for begin, end in zip(places, places[1:], strict=False)
        for piece in pieces.feed(content[begin:end])
    ]
    assert came == sent


@pytest.mark.parametrize("content", [b"\x09\0\0\0\0", b"\x01\xff\xff\xff\xff"])
def test_what_is_no_piece_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(ChannelReader().feed(content))
