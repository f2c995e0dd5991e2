"""A llama forward pass in numpy, straight from the blocks of a GGUF file: independent of all that it is to judge.

It shares no code with the converter: it finds the tensors itself, dequantises block by block as ggml documents it, and
rotates neighbouring pairs as llama.cpp does, where the converter takes the halves of each head apart.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class LlamaReference:
    """Logits of a llama-like model for whole token sequences, in float32."""

    def __init__(self, path: Path) -> None:
        self._raw = path.read_bytes()
        self._at = 8
        tensors, entries = self._unpack("<QQ")
        self.metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._string()
            self.metadata[key] = self._value(*self._unpack("<I"))
        places = {}
        for _ in range(tensors):
            name = self._string()
            shape = [self._unpack("<Q")[0] for _ in range(self._unpack("<I")[0])]
            places[name] = (shape[::-1], *self._unpack("<IQ"))
        start = (self._at + 31) // 32 * 32
        self.weights = {name: self._dequantise(start, *place) for name, place in places.items()}

    def logits(self, tokens: list[int], *, last: int) -> Array:
        """Return the logits after each of the `last` tokens, shape (last, vocabulary)."""
        layers = self.metadata["llama.block_count"]
        hidden = self.weights["token_embd.weight"][tokens]
        for index in range(layers):
            name = f"blk.{index}"
            hidden = hidden + self._attend(self._normalise(hidden, f"{name}.attn_norm.weight"), name)
            inner = self._normalise(hidden, f"{name}.ffn_norm.weight")
            gate = inner @ self.weights[f"{name}.ffn_gate.weight"].T
            gate = gate / (1 + np.exp(-gate))
            hidden = (
                hidden
                + (gate * (inner @ self.weights[f"{name}.ffn_up.weight"].T)) @ self.weights[f"{name}.ffn_down.weight"].T
            )
        return np.asarray(self._normalise(hidden[-last:], "output_norm.weight") @ self.weights["token_embd.weight"].T)

    def _attend(self, inner: Array, name: str) -> Array:
        heads, heads_kv = (self.metadata[f"llama.attention.head_count{kind}"] for kind in ("", "_kv"))
        length = len(inner)
        query, key, value = (
            (inner @ self.weights[f"{name}.attn_{kind}.weight"].T).reshape(length, count, -1)
            for kind, count in (("q", heads), ("k", heads_kv), ("v", heads_kv))
        )
        query, key = self._rotate(query), self._rotate(key)
        out = np.empty_like(query)
        future = np.triu(np.full((length, length), -np.inf, np.float32), 1)
        for head in range(heads):
            shared = head * heads_kv // heads
            scores = query[:, head] @ key[:, shared].T / np.float32(np.sqrt(query.shape[2])) + future
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = (weights / weights.sum(axis=1, keepdims=True)) @ value[:, shared]
        return np.asarray(out.reshape(length, -1) @ self.weights[f"{name}.attn_output.weight"].T)

    def _rotate(self, heads: Array) -> Array:
        length, _, size = heads.shape
        base = self.metadata["llama.rope.freq_base"]
        angles = np.arange(length)[:, None] * base ** (-np.arange(0, size, 2) / size)
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
        even, odd = heads[..., 0::2], heads[..., 1::2]
        turned = np.empty_like(heads)
        turned[..., 0::2] = even * cosine - odd * sine
        turned[..., 1::2] = even * sine + odd * cosine
        return turned

    def _normalise(self, hidden: Array, name: str) -> Array:
        epsilon = self.metadata["llama.attention.layer_norm_rms_epsilon"]
        mean_square = np.mean(np.square(hidden), axis=1, keepdims=True)
        return np.asarray(hidden / np.sqrt(mean_square + epsilon) * self.weights[name], np.float32)

    def _dequantise(self, start: int, shape: list[int], kind: int, offset: int) -> Array:
        count = int(np.prod(shape))
        if kind == 0:
            return np.asarray(np.frombuffer(self._raw, "<f4", count, start + offset).reshape(shape))
        layouts = {3: [("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)], 8: [("d", "<f2"), ("q", "i1", 32)]}
        blocks = np.frombuffer(self._raw, np.dtype(layouts[kind]), count // 32, start + offset)
        scale = blocks["d"].astype(np.float32)[:, None]
        if kind == 8:
            return np.asarray(scale * blocks["q"], np.float32).reshape(shape)
        values = np.empty((count // 32, 32), np.float32)
        values[:, :16] = blocks["q"] & 0x0F
        values[:, 16:] = blocks["q"] >> 4
        return np.asarray(values * scale + blocks["m"].astype(np.float32)[:, None]).reshape(shape)

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._raw, self._at)
        self._at += struct.calcsize(layout)
        return values

    def _string(self) -> str:
        (length,) = self._unpack("<Q")
        self._at += length
        return self._raw[self._at - length : self._at].decode()

    def _value(self, kind: int) -> Any:
        if kind == 8:
            return self._string()
        if kind == 9:
            inner, length = self._unpack("<IQ")
            return [self._value(inner) for _ in range(length)]
        return self._unpack("<" + "BbHhIif?"[kind])[0] if kind < 8 else self._unpack("<" + "Qqd"[kind - 10])[0]
