"""Makes tiny.litertlm: a language model with random weights, small enough to be kept here.

It takes TensorFlow, and ``litert-lm-builder`` (a package of its own, which needs another protobuf)
for the last step:

    python make_bundle.py FOLDER
    litert-lm-builder llm_metadata --path FOLDER/metadata.pbtext \
        tflite_model --path FOLDER/model.tflite --model_type prefill_decode \
        sp_tokenizer --path FOLDER/tokenizer.model output --path tiny.litertlm

The runtime asks for a signature ``prefill_N``, one ``decode`` with logits, and caches named
``kv_cache_k_0`` laid out as [1, heads, context, size]; the logits are as many as the tokenizer's
pieces.
"""

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

WIDTH, HEADS, CONTEXT, PROMPT = 32, 2, 256, 32
EACH = WIDTH // HEADS
LETTERS = "abcdefghijklmnopqrstuvwxyz"
#: The mark that stands for a space in SentencePiece.
SPACE = "\u2581"
#: SentencePiece's kinds of piece: unknown, control, normal.
PIECES = [
    ("<unk>", 2),
    ("<s>", 3),
    ("</s>", 3),
    *((piece, 1) for piece in (*LETTERS, SPACE, *(SPACE + a for a in LETTERS))),
]
METADATA = (
    "start_token: { token_ids: { ids: [1] } }\nstop_tokens: { token_ids: { ids: [2] } }\n"
    f"max_num_tokens: {CONTEXT}\nllm_model_type: {{ generic_model: {{}} }}\n"
)


def model(folder: Path) -> bytes:
    """Return the TFLite model: one layer of attention, its caches written by one-hot masks."""
    draw = np.random.default_rng(7)

    def weights(*shape: int) -> Any:
        return tf.constant(draw.normal(0, 0.1, shape).astype(np.float32))

    table = weights(len(PIECES), WIDTH)
    layer = {name: weights(WIDTH, WIDTH) for name in ("query", "k", "v", "out")}

    def split(x: Any, count: int) -> Any:
        return tf.transpose(tf.reshape(x, [count, HEADS, EACH]), [1, 0, 2])

    def signature(count: int, *, has_logits: bool) -> Any:
        def call(
            tokens: Any, input_pos: Any, kv_cache_k_0: Any, kv_cache_v_0: Any
        ) -> dict[str, Any]:
            x = tf.gather(table, tf.reshape(tokens, [count]))
            spots = tf.one_hot(input_pos, CONTEXT)
            free = 1.0 - tf.reduce_max(spots, axis=0)
            held = {
                name: cache[0] * free[None, :, None]
                + tf.einsum("tc,hte->hce", spots, split(x @ layer[name], count))
                for name, cache in (("k", kv_cache_k_0), ("v", kv_cache_v_0))
            }
            ahead = tf.cast(tf.range(CONTEXT)[None, :] > input_pos[:, None], tf.float32) * -1e4
            scores = (
                tf.matmul(split(x @ layer["query"], count), held["k"], transpose_b=True) / EACH**0.5
                + ahead
            )
            mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), held["v"]), [1, 0, 2])
            x = x + tf.reshape(mixed, [count, WIDTH]) @ layer["out"]
            told = {f"kv_cache_{name}_0": cache[None] for name, cache in held.items()}
            return told | (
                {"logits": tf.matmul(x, table, transpose_b=True)[None]} if has_logits else {}
            )

        cache = [1, HEADS, CONTEXT, EACH]
        return tf.function(call).get_concrete_function(
            tokens=tf.TensorSpec([1, count], tf.int32, name="tokens"),
            input_pos=tf.TensorSpec([count], tf.int32, name="input_pos"),
            kv_cache_k_0=tf.TensorSpec(cache, tf.float32, name="kv_cache_k_0"),
            kv_cache_v_0=tf.TensorSpec(cache, tf.float32, name="kv_cache_v_0"),
        )

    module = tf.Module()
    module.kept = [table, layer]
    signatures = {
        f"prefill_{PROMPT}": signature(PROMPT, has_logits=False),
        "decode": signature(1, has_logits=True),
    }
    tf.saved_model.save(module, str(folder / "saved"), signatures=signatures)
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(folder / "saved"), signature_keys=list(signatures)
    )
    return bytes(converter.convert())


def tokenizer() -> bytes:
    """Return a SentencePiece model (a protobuf) with a piece for each letter."""

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    def number(field: int, value: int) -> bytes:
        return varint(field << 3) + varint(value)

    def text(field: int, data: bytes) -> bytes:
        return varint(field << 3 | 2) + varint(len(data)) + data

    score = varint(2 << 3 | 5) + struct.pack("<f", -1.0)
    pieces = b"".join(
        text(1, text(1, piece.encode()) + score + number(3, kind)) for piece, kind in PIECES
    )
    trainer = number(3, 1) + number(4, len(PIECES))
    return pieces + text(2, trainer) + text(3, text(1, b"identity") + number(3, 1))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.tflite").write_bytes(model(folder))
    (folder / "tokenizer.model").write_bytes(tokenizer())
    (folder / "metadata.pbtext").write_text(METADATA)
