"""Files of models with a few kilobytes of weights: a language model (GGUF), a linear one (ONNX).

Tests create the weights, so they download none.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from random import Random
from typing import Any

# Shape of the language model: one transformer block.
_CONTEXT, _WIDTH, _HEADS, _INNER = 512, 64, 2, 64
_WORDS = tuple(f"\u2581w{number}" for number in range(60))
_BYTES = tuple(f"<0x{number:02X}>" for number in range(256))
_TOKENS = ("<unk>", "<s>", "</s>", *_BYTES, *_WORDS)
# Types of tokens: unknown, control, byte, normal.
_TOKEN_TYPES = (2, 3, 3, *(6 for _ in _BYTES), *(1 for _ in _WORDS))
_ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_FORMATS = {_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f"}


def language_model() -> bytes:
    """Return a GGUF file with random weights of the architecture ``llama``.

    With temperature 0 it writes words such as ``w7``, and never ends by itself.
    """
    facts: Mapping[str, tuple[int, Any]] = {
        "general.architecture": (_STRING, "llama"),
        "general.name": (_STRING, "tiny"),
        "llama.context_length": (_UINT32, _CONTEXT),
        "llama.embedding_length": (_UINT32, _WIDTH),
        "llama.block_count": (_UINT32, 1),
        "llama.feed_forward_length": (_UINT32, _INNER),
        "llama.attention.head_count": (_UINT32, _HEADS),
        "llama.attention.layer_norm_rms_epsilon": (_FLOAT32, 1e-5),
        "tokenizer.ggml.model": (_STRING, "llama"),
        "tokenizer.ggml.tokens": (_ARRAY, (_STRING, _TOKENS)),
        "tokenizer.ggml.scores": (_ARRAY, (_FLOAT32, [0.0] * len(_TOKENS))),
        "tokenizer.ggml.token_type": (_ARRAY, (_INT32, _TOKEN_TYPES)),
        "tokenizer.ggml.bos_token_id": (_UINT32, 1),
        "tokenizer.ggml.eos_token_id": (_UINT32, 2),
    }
    chance = Random(1)
    square = (_WIDTH, _WIDTH)
    tensors = {
        "token_embd.weight": _random(chance, (_WIDTH, len(_TOKENS))),
        "output_norm.weight": ((_WIDTH,), [1.0] * _WIDTH),
        "output.weight": _words_only(chance),
        "blk.0.attn_norm.weight": ((_WIDTH,), [1.0] * _WIDTH),
        **{
            f"blk.0.attn_{name}.weight": _random(chance, square)
            for name in ("q", "k", "v", "output")
        },
        "blk.0.ffn_norm.weight": ((_WIDTH,), [1.0] * _WIDTH),
        "blk.0.ffn_gate.weight": _random(chance, (_WIDTH, _INNER)),
        "blk.0.ffn_up.weight": _random(chance, (_WIDTH, _INNER)),
        "blk.0.ffn_down.weight": _random(chance, (_INNER, _WIDTH)),
    }
    return _gguf(facts, tensors)


_Tensor = tuple[tuple[int, ...], Sequence[float]]


def _random(chance: Random, shape: tuple[int, ...]) -> _Tensor:
    return shape, [chance.gauss(0, 0.2) for _ in range(prod(shape))]


def _words_only(chance: Random) -> _Tensor:
    """Return output weights that make a word the most probable token."""
    others = len(_TOKENS) - len(_WORDS)
    weights = [0.0] * (others * _WIDTH)
    weights += [chance.gauss(0, 1) for _ in range(len(_WORDS) * _WIDTH)]
    return (_WIDTH, len(_TOKENS)), weights


def _gguf(facts: Mapping[str, tuple[int, Any]], tensors: Mapping[str, _Tensor]) -> bytes:
    """Return a file of version 3; the first dimension of a shape is the innermost one."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts))
    for name, (kind, value) in facts.items():
        head += _string(name) + struct.pack("<I", kind) + _value(kind, value)
    data = b""
    for name, (shape, weights) in tensors.items():
        head += _string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}QIQ", *shape, 0, len(data))  # 0: 32-bit floats
        data += _padded(struct.pack(f"<{len(weights)}f", *weights))
    return _padded(head) + data


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _string(value)
    if kind == _ARRAY:
        inner, items = value
        parts = [_value(inner, item) for item in items]
        return struct.pack("<IQ", inner, len(parts)) + b"".join(parts)
    return struct.pack(_FORMATS[kind], value)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


def linear_model(weights: Sequence[float], bias: float) -> bytes:
    """Return an ONNX file that computes ``y = x · weights + bias`` for each row of ``x``."""
    count = len(weights)
    node = b"".join(_field(1, name) for name in ("x", "weights", "bias"))
    node += _field(2, "y") + _field(4, "Gemm")
    graph = _field(1, node) + _field(2, "linear")
    graph += _field(5, _tensor("weights", (count, 1), weights))
    graph += _field(5, _tensor("bias", (1,), [bias]))
    graph += _field(11, _matrix("x", count)) + _field(12, _matrix("y", 1))
    operators = _field(1, "") + _field(2, 13)
    return _field(1, 8) + _field(7, graph) + _field(8, operators)


def _tensor(name: str, shape: tuple[int, ...], values: Sequence[float]) -> bytes:
    sizes = b"".join(_field(1, size) for size in shape)
    raw = struct.pack(f"<{len(values)}f", *values)
    return sizes + _field(2, 1) + _field(8, name) + _field(9, raw)


def _matrix(name: str, columns: int) -> bytes:
    """Return the ONNX type of a matrix of 32-bit floats with any number of rows."""
    shape = _field(1, _field(2, "rows")) + _field(1, _field(1, columns))
    return _field(1, name) + _field(2, _field(1, _field(1, 1) + _field(2, shape)))


def _field(number: int, value: int | str | bytes) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
