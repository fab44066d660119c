"""A model of two small layers with random weights, and LoRA adapters for it.

Written with numpy alone: no model hub, no tokenizer library. The weights come from a
fixed seed, so greedy output is the same on every machine of one kind, and an adapter
changes it: a test can tell which adapter answered.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HIDDEN, LAYERS, HEADS, KV_HEADS = 64, 2, 4, 2
#: vLLM's attention for the CPU takes head sizes from 32 up.
HEAD_SIZE = 32
VOCABULARY = 320
CONTEXT = 32768
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Weights = dict[str, NDArray[np.float32]]


def make_model(path: Path) -> None:
    """Write a Llama checkpoint, tokenizer and chat template to the folder `path`."""
    path.mkdir(parents=True, exist_ok=True)
    ends = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
    _write_json(
        path / "config.json",
        ends
        | {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": HIDDEN,
            "intermediate_size": 2 * HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_SIZE,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        },
    )
    _write_json(path / "generation_config.json", ends)
    _write_json(path / "tokenizer.json", _tokenizer())
    _write_json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[0],
            "eos_token": SPECIAL[2],
            "pad_token": SPECIAL[0],
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "add_bos_token": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write_safetensors(path / "model.safetensors", _weights())


def make_adapter(path: Path, model: Path, *, rank: int = 8) -> None:
    """Write a LoRA adapter for `model`; its weights come from the folder's name."""
    path.mkdir(parents=True, exist_ok=True)
    _write_json(
        path / "adapter_config.json",
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": str(model.resolve()),
            "r": rank,
            "lora_alpha": 2 * rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "inference_mode": True,
            "target_modules": ["q_proj", "v_proj"],
        },
    )
    random = _Random(zlib.crc32(path.name.encode()), scale=0.5)
    weights: Weights = {}
    for layer in range(LAYERS):
        base = f"base_model.model.model.layers.{layer}.self_attn."
        for name, heads in (("q_proj", HEADS), ("v_proj", KV_HEADS)):
            weights[f"{base}{name}.lora_A.weight"] = random(rank, HIDDEN)
            weights[f"{base}{name}.lora_B.weight"] = random(heads * HEAD_SIZE, rank)
    _write_safetensors(path / "adapter_model.safetensors", weights)


class _Random:
    """Normal values of one seed and scale, in any shape."""

    def __init__(self, seed: int, *, scale: float) -> None:
        self._generator = np.random.default_rng(seed)
        self._scale = scale

    def __call__(self, *shape: int) -> NDArray[np.float32]:
        values = self._generator.standard_normal(shape) * self._scale
        return values.astype(np.float32)


def _weights() -> Weights:
    random = _Random(0, scale=0.05)
    ones = np.ones(HIDDEN, np.float32)
    inner = 2 * HIDDEN
    weights = {
        "model.embed_tokens.weight": random(VOCABULARY, HIDDEN),
        "model.norm.weight": ones,
        "lm_head.weight": random(VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        for name, shape in {
            "self_attn.q_proj": (HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.k_proj": (KV_HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HEADS * HEAD_SIZE),
            "mlp.gate_proj": (inner, HIDDEN),
            "mlp.up_proj": (inner, HIDDEN),
            "mlp.down_proj": (HIDDEN, inner),
        }.items():
            weights[f"{base}{name}.weight"] = random(*shape)
        weights[f"{base}input_layernorm.weight"] = ones
        weights[f"{base}post_attention_layernorm.weight"] = ones
    return weights


def _tokenizer() -> dict[str, object]:
    """A byte-level BPE without merges: a token a byte, and fillers up to VOCABULARY."""
    tokens = [*SPECIAL, *_byte_characters()]
    tokens += [f"word{n}" for n in range(VOCABULARY - len(tokens))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": number,
                "content": content,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for number, content in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level | {"trim_offsets": True},
        "post_processor": None,
        "decoder": byte_level | {"trim_offsets": True},
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [],
        },
    }


def _byte_characters() -> list[str]:
    """The character that byte-level BPE writes for each byte, as GPT-2 defined it.

    Printable Latin-1 characters stand for themselves; the others, in order, for the
    code points from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [
        chr(byte) if byte in printable else chr(256 + others.index(byte))
        for byte in range(256)
    ]


def _write_safetensors(path: Path, weights: Weights) -> None:
    """The format: length of the header, header as JSON, then the tensors in order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in weights.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [offset, offset + values.nbytes],
        }
        offset += values.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for values in weights.values():
            file.write(values.tobytes())


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))
