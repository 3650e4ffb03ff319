"""The real model of tests and benchmarks: SmolLM2-135M-Instruct, which `make test` fetches.

A test that uses it is marked `smollm2` and `real_model`: it is skipped with the reason where the
model is not there, and fails where `CLAWD_TEST_REQUIRE` names it. The model is weak: a test looks
at what any model must do (stream, stop, count), not at what it knows.
"""

from pathlib import Path

from bootstrap import models

SMOLLM2 = Path(__file__).parents[2] / ".setup" / "models" / models.FILE
NAME = "smollm2"


def lacking_smollm2() -> str:
    """Return why the model cannot be used; empty where it is there."""
    if SMOLLM2.is_file() and SMOLLM2.stat().st_size == models.SIZE:
        return ""
    return f"the real model is not at {SMOLLM2}; make test fetches it"


def smollm2_provider(more: str = "") -> str:
    """Return the tables of a config in which provider `smollm2` answers with the model."""
    return f'[providers.models.{NAME}]\nkind = "local"\nmodel = "{SMOLLM2}"\n{more}\n'
