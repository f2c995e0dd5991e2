"""Server-sent events: any chunking, line endings, comments, and an end without a blank line."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.engines.sse import MAX_EVENT_BYTES, SseError, SseParser

STREAM = (
    ': hello\r\n\r\nevent: x\r\ndata: {"a":1}\r\n\r\ndata:zwei: Zoë 你\n\ndata: one\ndata: two\n\nid: 7\n\n'.encode()
)
EVENTS = ['{"a":1}', "zwei: Zoë 你", "one\ntwo"]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_do_not_depend_on_where_the_chunks_are_cut(cuts: list[int]) -> None:
    parser = SseParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    events = [event for start, end in itertools.pairwise(edges) for event in parser.feed(STREAM[start:end])]
    assert events == EVENTS
    assert parser.flush() == []


@pytest.mark.parametrize("tail", [b"data: last", b"data: last\n", b"data: last\r\n"])
def test_a_last_event_without_its_blank_line_is_flushed(tail: bytes) -> None:
    parser = SseParser()
    assert parser.feed(tail) == []
    assert parser.flush() == ["last"]


def test_bytes_that_are_no_utf_8_do_not_raise() -> None:
    assert SseParser().feed(b"data: \xff\n\n") == ["\ufffd"]


def test_an_event_without_end_is_refused() -> None:
    parser = SseParser()
    with pytest.raises(SseError):
        parser.feed(b"data: " + b"x" * MAX_EVENT_BYTES)
    parser = SseParser()
    with pytest.raises(SseError):
        list(map(parser.feed, itertools.repeat(b"data: " + b"x" * 1_000 + b"\n", 2_000)))
