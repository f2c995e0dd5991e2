from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jitter.red import build_red, parse_red

copies = st.lists(st.tuples(st.integers(1, 16_383), st.binary(min_size=1, max_size=1023)), max_size=8)


@given(st.binary(max_size=200), copies)
def test_what_is_built_is_parsed_again(primary: bytes, given_copies: list[tuple[int, bytes]]) -> None:
    blocks = parse_red(build_red(payload_type=111, primary=primary, copies=given_copies))
    assert blocks is not None
    assert blocks[-1].payload == primary
    assert [(block.offset_ticks, block.payload) for block in blocks[:-1]] == sorted(given_copies, reverse=True)
    assert {block.payload_type for block in blocks} == {111}


def test_the_bytes_of_rfc_2198() -> None:
    built = build_red(payload_type=111, primary=b"new", copies=[(960, b"old")])
    assert built == bytes([0x80 | 111, 960 >> 6, (960 & 0x3F) << 2, 3, 111]) + b"old" + b"new"


def test_what_the_format_cannot_carry_is_left_out() -> None:
    built = build_red(payload_type=1, primary=b"p", copies=[(20_000, b"far"), (960, b"x" * 1024), (960, b"")])
    assert built == b"\x01p"


def test_truncated_headers_and_blocks_are_refused() -> None:
    built = build_red(payload_type=111, primary=b"new", copies=[(960, b"old")])
    assert parse_red(b"") is None
    assert parse_red(built[:3]) is None
    assert parse_red(built[:4]) is None
    assert parse_red(built[:7]) is None
    assert parse_red(bytes([0x80]) * 400) is None
