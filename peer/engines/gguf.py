"""A reader of GGUF files: metadata, and tensors as float32 (the formats are ggml's; layout of GGUF version 3)."""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32, _F16, _Q4_0, _Q4_1, _Q8_0 = 0, 1, 2, 3, 8
_BLOCK_BYTES = {_F32: (1, 4), _F16: (1, 2), _Q4_0: (32, 18), _Q4_1: (32, 20), _Q8_0: (32, 34)}
"""Values and bytes of one block, by ggml's type number."""


class GgufError(Exception):
    """A file that is not GGUF, or holds what this reader does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """An open GGUF file; `metadata` is read at once, tensors when asked for."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as source:
            self._data = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        if self._data[:4] != _MAGIC:
            raise GgufError(f"{path.name} is not a GGUF file")
        self._at = 4
        _version, tensors, entries = struct.unpack("<IQQ", self._take(20))
        self.metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._read_string()
            self.metadata[key] = self._read_value(self._read_scalar(4))
        self._tensors = dict(self._read_tensor_info() for _ in range(tensors))
        alignment = self.metadata.get("general.alignment", 32)
        self._start = math.ceil(self._at / alignment) * alignment

    @property
    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._tensors)

    def read(self, name: str) -> NDArray[np.float32]:
        """Return one tensor as float32, row-major; raises GgufError for an unknown name or format."""
        if name not in self._tensors:
            raise GgufError(f"no tensor named {name}")
        tensor = self._tensors[name]
        if tensor.kind not in _BLOCK_BYTES:
            raise GgufError(f"{name} is in ggml format {tensor.kind}, which this reader does not know")
        values, size = _BLOCK_BYTES[tensor.kind]
        count = math.prod(tensor.shape)
        start = self._start + tensor.offset
        raw = np.frombuffer(self._data, np.uint8, count // values * size, start)
        return _dequantise(raw.reshape(-1, size), tensor.kind).reshape(tensor.shape)

    def _take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise GgufError("the file ends early")
        self._at += size
        return piece

    def _read_scalar(self, kind: int) -> Any:
        if kind not in _SCALARS:
            raise GgufError(f"unknown metadata type {kind}")
        layout = f"<{_SCALARS[kind]}"
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _read_string(self) -> str:
        return self._take(self._read_scalar(10)).decode("utf-8")

    def _read_value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._read_string()
        if kind == _ARRAY:
            inner, length = self._read_scalar(4), self._read_scalar(10)
            return [self._read_value(inner) for _ in range(length)]
        return self._read_scalar(kind)

    def _read_tensor_info(self) -> tuple[str, _Tensor]:
        name = self._read_string()
        dimensions = [self._read_scalar(10) for _ in range(self._read_scalar(4))]
        kind, offset = self._read_scalar(4), self._read_scalar(10)
        return name, _Tensor(shape=tuple(reversed(dimensions)), kind=kind, offset=offset)


def _dequantise(blocks: NDArray[np.uint8], kind: int) -> NDArray[np.float32]:
    """Return the values of whole blocks, shape (blocks, bytes) in, (blocks, values) out."""
    if kind == _F32:
        return blocks.view(np.float32)
    if kind == _F16:
        return blocks.view(np.float16).astype(np.float32)
    if kind == _Q8_0:
        return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)
    low, high = blocks[:, -16:] & 15, blocks[:, -16:] >> 4
    quants = np.concatenate([low, high], axis=1).astype(np.float32)
    if kind == _Q4_0:
        return _half(blocks, 0) * (quants - 8)
    return _half(blocks, 0) * quants + _half(blocks, 2)


def _half(blocks: NDArray[np.uint8], at: int) -> NDArray[np.float32]:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)
