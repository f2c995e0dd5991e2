"""Pieces of speech become one text with the spacing of their script."""

from __future__ import annotations

import pytest

from transport.spoken_text import join_spoken


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("Hello, ", " you"), "Hello, you"),
        (("你好，", "世界"), "你好，世界"),
        (("", "x", " "), "x"),
        (("안녕하세요.", "반갑습니다."), "안녕하세요. 반갑습니다."),
        (("我说 OK", "好"), "我说 OK 好"),
        ((), ""),
    ],
)
def test_joining_respects_the_script(parts: tuple[str, ...], text: str) -> None:
    assert join_spoken(parts) == text
