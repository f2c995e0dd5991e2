"""The GGUF reader: metadata of every type, each format's values, and files that are broken."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.engines.gguf import GgufError, GgufFile


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def write(path: Path, metadata: list[bytes], tensors: list[tuple[str, tuple[int, ...], int, bytes]]) -> Path:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata)
    offset, data = 0, b""
    for name, shape, kind, raw in tensors:
        head += text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, offset)
        data += raw + bytes(-len(raw) % 32)
        offset = len(data)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def half(*values: float) -> bytes:
    return np.array(values, "<f2").tobytes()


def test_metadata_of_every_type(tmp_path: Path) -> None:
    values: list[tuple[int, str, Any]] = [
        (0, "<B", 200), (1, "<b", -3), (2, "<H", 60_000), (3, "<h", -9), (4, "<I", 4_000_000_000), (5, "<i", -5),
        (6, "<f", 0.5), (7, "<?", True), (10, "<Q", 1 << 40), (11, "<q", -(1 << 40)), (12, "<d", 0.1),
    ]  # fmt: skip
    metadata = [entry(f"k{kind}", kind, struct.pack(layout, value)) for kind, layout, value in values]
    metadata.append(entry("words", 9, struct.pack("<IQ", 8, 2) + text("Ġa") + text("你")))
    found = GgufFile(write(tmp_path / "m.gguf", metadata, [])).metadata
    assert found == {f"k{kind}": value for kind, _, value in values} | {"words": ["Ġa", "你"]}


def test_each_format_gives_its_values(tmp_path: Path) -> None:
    quants = np.arange(32, dtype=np.int8)
    nibbles = bytes((i % 16) | ((15 - i % 16) << 4) for i in range(16))
    path = write(
        tmp_path / "t.gguf",
        [],
        [
            ("f32", (2, 3), 0, np.arange(6, dtype="<f4").tobytes()),
            ("f16", (4,), 1, half(1, -2, 0.5, 8)),
            ("q8_0", (32,), 8, half(0.5) + (quants - 16).tobytes()),
            ("q4_0", (32,), 2, half(2.0) + nibbles),
            ("q4_1", (2, 32), 3, (half(2.0, -1.0) + nibbles) * 2),
        ],
    )
    file = GgufFile(path)
    low = np.arange(16.0)
    assert file.names == ["f32", "f16", "q8_0", "q4_0", "q4_1"]
    assert np.array_equal(file.read("f32"), np.arange(6).reshape(2, 3))
    assert np.array_equal(file.read("f16"), [1, -2, 0.5, 8])
    assert np.array_equal(file.read("q8_0"), (np.arange(32) - 16) * 0.5)
    assert np.array_equal(file.read("q4_0"), 2 * (np.concatenate([low, 15 - low]) - 8))
    assert np.array_equal(file.read("q4_1"), [2 * np.concatenate([low, 15 - low]) - 1] * 2)


def test_what_is_not_there_or_not_known_is_named(tmp_path: Path) -> None:
    file = GgufFile(write(tmp_path / "t.gguf", [], [("odd", (256,), 12, bytes(144))]))
    with pytest.raises(GgufError, match="no tensor named even"):
        file.read("even")
    with pytest.raises(GgufError, match="format 12"):
        file.read("odd")


@pytest.mark.parametrize("data", [b"PK\3\4" + bytes(60), b"GGUF" + struct.pack("<IQQ", 3, 0, 9)])
def test_other_and_broken_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(GgufError):
        GgufFile(tmp_path / "x.gguf")
