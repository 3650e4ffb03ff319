"""The table of families whose formats are tags, tokens or bare objects (first half)."""

from clawd.providers.toolcalls import (
    deepseek,
    glm,
    kimi_k2,
    llama3,
    minimax_m2,
    mistral,
    qwen3_coder,
    seed_oss,
)
from clawd.providers.toolcalls.family import Family, always

FAMILIES_A: tuple[Family, ...] = (
    Family(
        "seed-oss", seed_oss.matches, seed_oss.make, always(*seed_oss.FRAMES), seed_oss.THOUGHTS
    ),
    Family("minimax-m2", minimax_m2.matches, minimax_m2.make, always(minimax_m2.FRAME)),
    Family("deepseek", deepseek.matches, deepseek.make, deepseek.frames),
    Family("kimi-k2", kimi_k2.matches, kimi_k2.make, always(*kimi_k2.FRAMES)),
    Family("glm", glm.matches, glm.make, always(glm.FRAME)),
    Family("qwen3-coder", qwen3_coder.matches, qwen3_coder.make, always(*qwen3_coder.FRAMES)),
    Family("mistral", mistral.matches, mistral.make, mistral.frames, mistral.THOUGHTS),
    Family("llama3", llama3.matches, llama3.make, always(*llama3.FRAMES)),
)

OPENINGS_A: tuple[str, ...] = tuple(
    dict.fromkeys(
        opening
        for family in (
            seed_oss,
            minimax_m2,
            deepseek,
            kimi_k2,
            glm,
            qwen3_coder,
            mistral,
            llama3,
        )
        for opening in family.OPENINGS
    )
)
"""What opens a call in any of these formats: text that holds one and no call was to be one."""
