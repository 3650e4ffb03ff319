"""The model of embeddings that the config names: whom it asks, what it sends, what it refuses."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from clawd.errors import BusyError, ClawError, ConfigError, ContextFullError, StoppedError
from clawd.providers.base import Provider, RawPrompt, Vectors
from clawd.providers.scripted import ScriptedProvider
from clawd.security.redact import Redactor
from clawd.service.embedding import NamedEmbedder

SECRET = "sk-0123456789abcdef"
REDACTOR = Redactor([SECRET], b"k" * 32)
LIMIT = 10


class Remote(ScriptedProvider):
    """Makes vectors of texts of up to ten words, and keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__("remote", None)
        self.sent: list[tuple[str, str]] = []

    async def embed(self, model: str, inputs: Sequence[RawPrompt]) -> Vectors:
        for each in inputs:
            assert isinstance(each, str)
            count = len(each.split())
            if count > LIMIT:
                raise ContextFullError("too long", data={"n_ctx": LIMIT, "n_prompt_tokens": count})
            self.sent.append((model, each))
        return Vectors(vectors=tuple(b"\0" * 8 for _ in inputs), tokens=1, model=model)


class Local(Remote):
    """The same on this machine, with room for it or without."""

    is_full = False

    def has_room(self, model: str) -> bool:
        return not self.is_full

    async def digest(self, model: str) -> str:
        return f"digest of {model}"


def named(text: str, *providers: tuple[str, Provider], stopped: bool = False) -> NamedEmbedder:
    return NamedEmbedder(
        text,
        providers=lambda: dict(providers),
        redact=REDACTOR.text,
        is_stopped=lambda: stopped,
    )


async def test_secrets_stay_here_where_the_model_is_elsewhere() -> None:
    remote, local = Remote(), Local()
    text = f"the key is {SECRET}"
    for embedder in (named("far/some/model", ("far", remote)), named("near", ("near", local))):
        assert await embedder.vectors([text]) == [b"\0" * 8]
    ((model, sent),) = remote.sent
    assert model == "some/model"
    assert SECRET not in sent
    assert "[secret:" in sent
    assert local.sent == [("", text)]
    assert await named("far/m", ("far", remote)).identity() == "far/m m"
    assert await named("near/m", ("near", local)).identity() == "near/m digest of m"


async def test_a_text_over_the_model_counts_by_its_beginning() -> None:
    remote = Remote()
    short, long = "one two", " ".join(f"word{number}" for number in range(95))
    made = await named("far/m", ("far", remote)).vectors([short, long])
    assert len(made) == 2
    sent = remote.sent[-1][1]
    assert long.startswith(sent)
    assert LIMIT // 2 <= len(sent.split()) <= LIMIT


async def test_what_may_not_be_asked_is_not_asked() -> None:
    local = Local()
    with pytest.raises(StoppedError):
        await named("near", ("near", local), stopped=True).vectors(["x"])
    local.is_full = True
    with pytest.raises(BusyError, match="does not fit beside"):
        await named("near", ("near", local)).vectors(["x"])
    with pytest.raises(ConfigError, match="provider 'gone'"):
        await named("gone/m", ("near", local)).vectors(["x"])
    with pytest.raises(ClawError, match="makes no embeddings"):
        await named("mock", ("mock", ScriptedProvider("mock", None))).vectors(["x"])
    assert local.sent == []


def test_the_digest_of_a_model_file_tells_it_from_others(tmp_path: Path) -> None:
    from clawd.engine.models import sampled_digest

    made = []
    for content in (b"a", b"b", b"a" * 3_000_000, b"a" * 2_999_999 + b"b"):
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        made.append(sampled_digest(path))
        assert sampled_digest(path) == made[-1]
    assert len(set(made)) == 4
