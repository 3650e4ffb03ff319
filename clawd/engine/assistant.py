"""The packaged assistant: a small real model, and clawd's own LoRA adapter over it.

Adapter, chat template and card are package data. The base, a file of 98 MB, is not: it stands as
`assistant.gguf` in a folder of models. What is used is what the adapter was made for, by digest;
where anything of it is missing or damaged, the embedded model answers who asked for neither.

The card begins so, and figures follow:

    is_default = false
    [base]
    name = "SmolLM2-135M-Instruct Q4_1"
    sha256 = "b179c952…"
    licence = "Apache-2.0"

    [adapter]
    sha256 = "9f86d081…"
"""

import hashlib
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from clawd.engine import embedded
from clawd.engine.pins import read_pin
from clawd.errors import ModelLoadError
from clawd.wire.models import Seen, seen

ASSISTANT = "assistant"
BASE_FILE = f"{ASSISTANT}.gguf"
PULL = "clawctl model pull assistant"
SHARED_MODELS = Path("/usr/share/clawd/models")
"""Where the package `clawd-model-small` puts the base."""

_MAX_CARD_BYTES = 1 << 20
_MAX_BASE_BYTES = 1 << 30  # what is larger is another model, and would take long to read


class Assistant(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the package that make an assistant of its base; a test has its own."""

    adapter: Path
    template: Path
    card: Path

    @property
    def is_there(self) -> bool:
        """Whether the package has all of them."""
        return not self._lacking()

    @property
    def is_default(self) -> bool:
        """Whether the card says that it answers unasked: it was judged good enough."""
        try:
            return self.read_card().get("is_default") is True
        except (OSError, ValueError):
            return False

    def problem(self, base: Path) -> str:
        """Return why it cannot be made with this base, "" where it can; blocks once for each file.

        What was found right, or wrong, is not read again while it looks the same.
        """
        if lacking := self._lacking():
            return f"this installation lacks {lacking}"
        try:
            card = self.read_card()
            for path, part in ((base, "base"), (self.adapter, "adapter")):
                if path.stat().st_size > _MAX_BASE_BYTES:
                    return f"{path} is too large to be its {part}"
                wanted, found = fact(card, part, "sha256"), _digest(path)
                if found != wanted:
                    return f"{path} is damaged: it has SHA-256 {found}, the card says {wanted}"
        except (OSError, ValueError) as error:
            return f"it cannot be read: {error}"
        return ""

    def check(self, base: Path) -> None:
        """See that it can be made with this base; blocks as `problem` does.

        Raises:
            ModelLoadError: it cannot.
        """
        if problem := self.problem(base):
            hint = f"Get its base anew: {PULL} --force" if self.is_there else "Install clawd anew."
            raise ModelLoadError(f"the assistant cannot be used: {problem}", hint=hint)

    def read_card(self) -> dict[str, Any]:
        """Return what is told of how it was made and how good it is.

        Raises:
            OSError: the card cannot be read; ValueError: it is none.
        """
        with self.card.open("rb") as file:
            return tomllib.loads(file.read(_MAX_CARD_BYTES).decode("utf-8"))

    def _lacking(self) -> str:
        files = (self.adapter, self.template, self.card)
        return next((path.name for path in files if not path.is_file()), "")


def packaged_assistant() -> Assistant:
    """Return the assistant of the installed package, whose files need not be there."""
    folder = embedded.embedded_model_path().parent
    return Assistant(
        adapter=folder / "assistant-adapter.gguf",
        template=folder / "assistant.jinja",
        card=folder / "assistant-card.toml",
    )


def fact(card: dict[str, Any], *keys: str) -> str:
    """Return a text of a card, "" where it is not told."""
    value: Any = card
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _digest(path: Path) -> str:
    looks = seen(path.stat())
    try:
        pin = read_pin(path)
    except ModelLoadError:
        pin = None
    return pin.sha256 if pin is not None and pin.seen == looks else _read_digest(path, looks)


@lru_cache(maxsize=8)
def _read_digest(path: Path, _looks: Seen) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
