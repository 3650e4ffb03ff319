"""The embedding model of tests and benchmarks: all-MiniLM-L6-v2, which `make test` fetches.

A test that uses it is marked `minilm` and `real_model`: it is skipped with the reason where the
model is not there, and fails where `CLAWD_TEST_REQUIRE` names it.
"""

from pathlib import Path

from bootstrap import models

MINILM = Path(__file__).parents[2] / ".setup" / "models" / models.EMBEDDER_FILE
SIZE = 384


def lacking_minilm() -> str:
    """Return why the model cannot be used; empty where it is there."""
    if MINILM.is_file() and MINILM.stat().st_size == models.EMBEDDER_SIZE:
        return ""
    return f"the embedding model is not at {MINILM}; make test fetches it"
