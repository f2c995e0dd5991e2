"""From a llama-like GGUF file to what the engines load: a CTranslate2 model, or a Hugging Face folder for vLLM.

Run as a command, `python -m peer.engines.llm_convert GGUF FOLDER FORMAT`, so that the memory it takes (a float32 copy
of the weights) is given back.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import common_spec
from ctranslate2.specs.transformer_spec import TransformerDecoderModelSpec
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from peer.engines.gguf import GgufError, GgufFile

FORMATS = ("int8", "float32", "hf")
_CONTROL_TOKEN = 3
Weights = NDArray[np.float32]


class LlamaFile:
    """A GGUF file of the llama architecture, its weights in Hugging Face's layout."""

    def __init__(self, path: Path) -> None:
        self._file = GgufFile(path)
        self.metadata = self._file.metadata
        if self.metadata.get("general.architecture") != "llama":
            raise GgufError(f"{path.name} holds a {self.metadata.get('general.architecture')} model, not a llama one")
        self.layers: int = self.metadata["llama.block_count"]
        self.heads: int = self.metadata["llama.attention.head_count"]
        self.heads_kv: int = self.metadata["llama.attention.head_count_kv"]
        self.rope_base: float = self.metadata.get("llama.rope.freq_base", 10_000.0)
        self.norm_epsilon: float = float(f"{self.metadata['llama.attention.layer_norm_rms_epsilon']:.6g}")
        self.tokens: list[str] = self.metadata["tokenizer.ggml.tokens"]

    def token(self, role: str) -> str:
        """Return the bos, eos or unknown token."""
        index: int = self.metadata[f"tokenizer.ggml.{role}_token_id"]
        return self.tokens[index]

    def read(self, name: str) -> Weights:
        """Return a tensor as it stands in the file."""
        return self._file.read(name)

    def read_rotated(self, name: str, heads: int) -> Weights:
        """Return a query or key projection with each head's halves apart; GGUF holds them interleaved."""
        weight = self.read(name)
        return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)

    @property
    def output(self) -> Weights:
        """The output projection, which small models share with the embedding."""
        return self.read("output.weight" if "output.weight" in self._file.names else "token_embd.weight")


def build_tokenizer(model: LlamaFile) -> Tokenizer:
    """Return the byte-level BPE tokenizer that the file describes."""
    metadata = model.metadata
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        raise GgufError(f"a tokenizer of kind {metadata.get('tokenizer.ggml.model')} is not supported")
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in metadata["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(BPE({token: index for index, token in enumerate(model.tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    single_digits = metadata.get("tokenizer.ggml.pre") == "smollm"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level]) if single_digits else byte_level
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(model.tokens, metadata["tokenizer.ggml.token_type"], strict=True)
    tokenizer.add_special_tokens([token for token, kind in kinds if kind == _CONTROL_TOKEN])
    return tokenizer


def write_ctranslate2(model: LlamaFile, folder: Path, quantization: str) -> None:
    """Write a CTranslate2 decoder of the model into `folder`, with its tokenizer."""
    spec = TransformerDecoderModelSpec.from_config(
        model.layers,
        model.heads,
        activation=common_spec.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=model.rope_base,
        num_heads_kv=None if model.heads_kv == model.heads else model.heads_kv,
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = model.read("token_embd.weight")
    decoder.projection.weight = model.output
    decoder.layer_norm.gamma = model.read("output_norm.weight")
    for index, layer in enumerate(decoder.layer):
        _fill_layer(layer, model, f"blk.{index}")
    spec.config.bos_token = model.token("bos")
    spec.config.eos_token = model.token("eos")
    spec.config.unk_token = model.token("unknown")
    spec.config.layer_norm_epsilon = model.norm_epsilon
    spec.register_vocabulary(model.tokens)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))
    build_tokenizer(model).save(str(folder / "tokenizer.json"))


def _fill_layer(layer: Any, model: LlamaFile, name: str) -> None:
    attention, feed_forward = layer.self_attention, layer.ffn
    attention.layer_norm.gamma = model.read(f"{name}.attn_norm.weight")
    attention.linear[0].weight = np.concatenate([
        model.read_rotated(f"{name}.attn_q.weight", model.heads),
        model.read_rotated(f"{name}.attn_k.weight", model.heads_kv),
        model.read(f"{name}.attn_v.weight"),
    ])  # fmt: skip
    attention.linear[1].weight = model.read(f"{name}.attn_output.weight")
    feed_forward.layer_norm.gamma = model.read(f"{name}.ffn_norm.weight")
    feed_forward.linear_0.weight = model.read(f"{name}.ffn_gate.weight")
    feed_forward.linear_0_noact.weight = model.read(f"{name}.ffn_up.weight")
    feed_forward.linear_1.weight = model.read(f"{name}.ffn_down.weight")


def write_hugging_face(model: LlamaFile, folder: Path) -> None:
    """Write config, tokenizer and float16 weights as a Hugging Face folder, which vLLM loads."""
    embedding = model.read("token_embd.weight")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": embedding.shape[1],
        "intermediate_size": model.metadata["llama.feed_forward_length"],
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.heads_kv,
        "vocab_size": len(model.tokens),
        "max_position_embeddings": model.metadata["llama.context_length"],
        "rms_norm_eps": model.norm_epsilon,
        "rope_theta": model.rope_base,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "bos_token_id": model.metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": model.metadata["tokenizer.ggml.eos_token_id"],
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": model.token("bos"),
        "eos_token": model.token("eos"),
        "unk_token": model.token("unknown"),
        "chat_template": model.metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=1))
    build_tokenizer(model).save(str(folder / "tokenizer.json"))
    _write_safetensors(folder / "model.safetensors", _name_like_hugging_face(model))


def _name_like_hugging_face(model: LlamaFile) -> dict[str, Callable[[], Weights]]:
    """Return a reader for each tensor, so that one at a time is in memory."""
    readers: dict[str, Callable[[], Weights]] = {
        "model.embed_tokens.weight": partial(model.read, "token_embd.weight"),
        "model.norm.weight": partial(model.read, "output_norm.weight"),
    }
    plain = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    rotated = {"self_attn.q_proj": ("attn_q", model.heads), "self_attn.k_proj": ("attn_k", model.heads_kv)}
    for index in range(model.layers):
        for theirs, ours in plain.items():
            readers[f"model.layers.{index}.{theirs}.weight"] = partial(model.read, f"blk.{index}.{ours}.weight")
        for theirs, (ours, heads) in rotated.items():
            name = f"blk.{index}.{ours}.weight"
            readers[f"model.layers.{index}.{theirs}.weight"] = partial(model.read_rotated, name, heads)
    return readers


def _write_safetensors(path: Path, readers: dict[str, Callable[[], Weights]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, read in readers.items():
        shape = read().shape
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header).encode()
    with path.open("wb") as sink:
        sink.write(len(encoded).to_bytes(8, "little") + encoded)
        for read in readers.values():
            sink.write(read().astype(np.float16).tobytes())


def convert(source: Path, folder: Path, form: str) -> None:
    """Write `source` in one of FORMATS to `folder`, which appears whole or not at all; raises GgufError."""
    model = LlamaFile(source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        unfinished = Path(scratch) / "model"
        unfinished.mkdir()
        if form == "hf":
            write_hugging_face(model, unfinished)
        else:
            write_ctranslate2(model, unfinished, form)
        if folder.exists():
            shutil.rmtree(folder)
        unfinished.rename(folder)


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except (GgufError, KeyError, OSError) as failure:
        sys.exit(f"{type(failure).__name__}: {failure}")
