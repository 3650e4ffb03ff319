"""What both engines are told alike, and the model they answer with."""

from pathlib import Path

import msgspec

from clawd.engine.worker.files import usable_cores
from tests.bench.chain import Vocabulary, chain_of
from tests.support.gguf_models import write_random_gguf

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class EngineSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide about speed; all others are the same by default or by nature.

    Attributes:
        answer_tokens: the length of every answer; the model never ends one by itself.
        streams: the most that run at the same time.
        threads: that compute. On as many as there are cores, whatever else runs (the measuring
            client too) makes llama.cpp's threads wait for each other, on both sides.
        prefix_cache_disk_mb: for conversations that outlive a restart, on our side.
        speculation: of `[engine]`, on our side; "" leaves it at its default.
        kv_unified: the peer's slots share one KV cache of `context_tokens`; otherwise each has as
            many of its own, which is its default for a given number of slots.
    """

    model: Path
    answer_tokens: int
    streams: int
    threads: int
    context_tokens: int = 4096
    batch_tokens: int = 512
    prefix_cache_disk_mb: int = 0
    speculation: str = ""
    kv_unified: bool = True


def default_threads() -> int:
    """Return half of the cores: the other half is for the client and what else the machine does."""
    return max(1, usable_cores() // 2)


def write_model(path: Path, *, layers: int) -> Path:
    """Write a Q8_0 llama with random weights that answers with a fixed chain of printable text."""
    return write_random_gguf(
        path,
        n_embd=1024,
        n_layer=layers,
        n_head=16,
        n_kv_head=4,
        n_ff=2816,
        chain_order=chain_of(Vocabulary()),
        chat_template=CHAT_TEMPLATE,
    )
