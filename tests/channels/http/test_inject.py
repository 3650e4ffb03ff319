"""`X-Clawd-Inject: off` on the real model: a request costs its own tokens and no others."""

from pathlib import Path

import pytest

from tests.channels.http.rig import served
from tests.support.smollm2 import NAME, smollm2_provider

pytestmark = [pytest.mark.real_model, pytest.mark.smollm2]
pytest.importorskip("llama_cpp")

SAID = "How many legs has a spider?"
# As the model's own template writes it, with the system text that the template itself puts first.
WRITTEN = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    f"<|im_end|>\n<|im_start|>user\n{SAID}<|im_end|>\n<|im_start|>assistant\n"
)


async def test_r4_without_injection_a_prompt_has_the_tokens_that_the_template_writes(
    tmp_path: Path,
) -> None:
    tables = smollm2_provider("[engine]\nn_threads = 1\n")
    async with served(tmp_path, tables=tables) as door:
        asked = {"model": NAME, "content": WRITTEN, "parse_special": True}
        _, cut = await door.post("/tokenize", asked)
        body = {
            "model": NAME,
            "messages": [{"role": "user", "content": SAID}],
            "max_tokens": 2,
            "temperature": 0,
        }
        off = {"X-Clawd-Inject": "off"}
        _, chat = await door.post("/v1/chat/completions", body, **off)
        assert chat["usage"]["prompt_tokens"] == len(cut["tokens"])
        _, message = await door.post("/v1/messages", body, **off)
        usage = message["usage"]
        read = sum(usage.get(key) or 0 for key in ("input_tokens", "cache_read_input_tokens"))
        assert read == len(cut["tokens"])
        _, own = await door.post("/api/chat", {**body, "stream": False}, **off)
        assert own["prompt_eval_count"] == len(cut["tokens"])
