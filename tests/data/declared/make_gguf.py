"""Makes tiny.gguf: a Llama of 14,000 random weights and a vocabulary without words, which llama.cpp
loads and times.

``pip install gguf numpy`` in an environment of its own, then ``python make_gguf.py``.
"""

from pathlib import Path

import gguf
import numpy as np

EMBEDDING, FEED_FORWARD, HEADS, VOCABULARY, CONTEXT = 32, 64, 2, 64, 2048

rng = np.random.default_rng(0)
writer = gguf.GGUFWriter(str(Path(__file__).with_name("tiny.gguf")), "llama")
writer.add_context_length(CONTEXT)
writer.add_embedding_length(EMBEDDING)
writer.add_block_count(1)
writer.add_feed_forward_length(FEED_FORWARD)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(EMBEDDING // HEADS)
writer.add_vocab_size(VOCABULARY)
writer.add_tokenizer_model("no_vocab")
square, wide = (EMBEDDING, EMBEDDING), (FEED_FORWARD, EMBEDDING)
shapes = {
    "token_embd": (VOCABULARY, EMBEDDING), "output": (VOCABULARY, EMBEDDING),
    "blk.0.attn_q": square, "blk.0.attn_k": square, "blk.0.attn_v": square, "blk.0.attn_output": square,
    "blk.0.ffn_gate": wide, "blk.0.ffn_up": wide, "blk.0.ffn_down": wide[::-1],
}  # fmt: skip
for name, shape in shapes.items():
    writer.add_tensor(f"{name}.weight", rng.normal(0, 0.02, shape).astype(np.float32))
for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
    writer.add_tensor(f"{name}.weight", np.ones(EMBEDDING, np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
