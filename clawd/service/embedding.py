"""The model of embeddings that [memory] names, and what searches by meaning do with it."""

import time
from collections.abc import Callable, Mapping, Sequence

from clawd.errors import BusyError, ConfigError, ContextFullError, InvalidRequestError, StoppedError
from clawd.memory.indexer import Indexer
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.store import Memory
from clawd.memory.vectors import Counted
from clawd.providers.base import Embedding, Hosting, Provider, able
from clawd.runtime.hub import DaemonEvent
from clawd.wire.events import TurnFailed, TurnFinished, TurnStarted

MAX_CUTS = 6
COUNT_LIFE_S = 2.0
MAX_COUNTED = 16

_SHORTER = 0.9  # than what a share of the tokens says, as tokens are not equally long


class NamedEmbedder:
    """Makes vectors with a provider that the config knows, as it is then.

    Args:
        named: `PROVIDER/MODEL`, or `PROVIDER` for the model that it answers with.
        providers: returns the providers by name.
        redact: replaces secrets in what leaves this machine.
        is_stopped: returns whether the emergency stop is set.
    """

    def __init__(
        self,
        named: str,
        *,
        providers: Callable[[], Mapping[str, Provider]],
        redact: Callable[[str], str],
        is_stopped: Callable[[], bool],
    ) -> None:
        self.named = named
        self._providers = providers
        self._redact = redact
        self._is_stopped = is_stopped

    async def identity(self) -> str:
        """Return provider, model, and of a local one what its file is known by."""
        provider, model = self._found()
        if isinstance(provider, Hosting):
            return f"{self.named} {await provider.digest(model)}"
        return f"{self.named} {model}"

    async def vectors(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector of each text, or of as much of its beginning as the model takes.

        No other model is unloaded for this one. Secrets do not leave this machine.

        Raises:
            StoppedError: the emergency stop is set.
            BusyError: there is no room for the model beside those that are loaded.
            ClawError: it is not there, or failed.
        """
        provider, model = self._found()
        if self._is_stopped():
            raise StoppedError("the emergency stop is set: nothing is embedded")
        if isinstance(provider, Hosting):
            if not provider.has_room(model):
                raise BusyError(
                    f"embedding model {self.named} does not fit beside the models that are loaded",
                    retry_after_s=60.0,
                    hint="Raise [engine] max_loaded, if there is memory for one more.",
                )
        else:
            texts = [self._redact(text) for text in texts]
        try:
            return list((await provider.embed(model, texts)).vectors)
        except ContextFullError:
            return [await _of_beginning(provider, model, text) for text in texts]

    def _found(self) -> tuple[Embedding, str]:
        name, _, model = self.named.partition("/")
        provider = self._providers().get(name)
        if provider is None:
            raise ConfigError(f"[memory] embedding names provider {name!r}, which is not there")
        found = able(provider, Embedding, model)  # type: ignore[type-abstract]
        if found is None:
            raise InvalidRequestError(
                f"provider {name} makes no embeddings",
                hint="[memory] embedding wants one that is local or openai-compatible.",
            )
        return found


async def _of_beginning(provider: Embedding, model: str, text: str) -> bytes:
    """Return the vector of as much of a text as the model takes."""
    for _ in range(MAX_CUTS):
        try:
            (vector,) = (await provider.embed(model, [text])).vectors
        except ContextFullError as error:
            facts = error.data or {}
            fits, has = facts.get("n_ctx") or 0, facts.get("n_prompt_tokens") or 0
            share = _SHORTER * fits / has if 0 < fits < has else 0.5
            text = text[: int(len(text) * share)]
        else:
            return vector
    raise InvalidRequestError(f"not even {len(text)} characters fit the model")


class MeaningIndex:
    """Searches of memory and knowledge by meaning, as the daemon holds them.

    Args:
        embedder: the model that the config names.
        memory: what is searched by meaning from now on.
        knowledge: as well.
        may_work: returns whether texts may be embedded now.

    Attributes:
        indexer: makes vectors in idle time.
    """

    def __init__(
        self,
        embedder: NamedEmbedder,
        memory: Memory,
        knowledge: Knowledge,
        *,
        may_work: Callable[[], bool],
    ) -> None:
        self.named = embedder.named
        self._counted: dict[int | None, tuple[float, Counted]] = {}
        self._vectors = memory.search_by_meaning(embedder)
        knowledge.meaning = memory.search.meaning
        self.indexer = Indexer(self._vectors, knowledge, embedder, may_work=may_work)
        knowledge.changed = self.indexer.wake

    async def counts(self, *, owner: int | None) -> Counted:
        """Return how many messages are indexed, of how many; None for everybody's.

        Counting walks over all messages: what was counted just now is told again.
        """
        before = self._counted.pop(owner, None)
        if before is None or time.monotonic() - before[0] >= COUNT_LIFE_S:
            before = (time.monotonic(), await self._vectors.counts(owner=owner))
        self._counted[owner] = before
        while len(self._counted) > MAX_COUNTED:
            del self._counted[next(iter(self._counted))]
        return before[1]

    def note(self, told: DaemonEvent) -> None:
        """Give way to a turn that begins, and look when one has ended: a listener of the hub."""
        if isinstance(told.event, TurnStarted):
            self.indexer.give_way()
        elif isinstance(told.event, TurnFinished | TurnFailed):
            self.indexer.wake()

    def note_estop(self, is_set: bool) -> None:  # noqa: FBT001 - the listener's signature
        """Stop when the emergency stop is set: a listener of it."""
        if is_set:
            self.indexer.give_way()
        else:
            self.indexer.wake()
