"""Conversations with the daemon, over its control socket."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from clawctl.client import Client, connect
from clawd.wire.events import PromptEvaluated, TextDelta
from clawd.wire.turns import SendMessage
from tests.bench import ours
from tests.bench.engine_setup import EngineSetup
from tests.bench.llama.talk import Heard, IsEnough, Talk, never
from tests.bench.memory import memory_mb
from tests.bench.streams import BenchError, now


@contextmanager
def running_ours(folder: Path, setup: EngineSetup) -> Iterator["Ours"]:
    """Start a daemon in a throwaway home."""
    with ours.running_daemon(folder, setup) as daemon:
        yield Ours(daemon, setup)


class Ours:
    """A daemon that answers."""

    def __init__(self, daemon: ours.Daemon, setup: EngineSetup) -> None:
        self._daemon = daemon
        self._setup = setup

    @contextmanager
    def talk(self) -> Iterator[Talk]:
        """Connect for a conversation of its own."""
        with _conversing(self._daemon.socket, self._setup.answer_tokens) as talk:
            yield talk

    def restart(self) -> None:
        """End the daemon and start it again."""
        self._daemon.restart()

    def memory_mb(self) -> float:
        """Return what daemon and worker take in RAM."""
        pid = self._daemon.home.pid()
        if pid is None:
            raise BenchError(f"the daemon is gone: {self._daemon.home.log()[-2000:]}")
        return memory_mb(pid, self._setup.model)


@contextmanager
def _conversing(socket: Path, answer_tokens: int, conversation_id: str = "") -> Iterator[Talk]:
    with connect(socket) as client:
        yield _Conversation(client, socket, answer_tokens, conversation_id)


class _Conversation:
    def __init__(
        self, client: Client, socket: Path, answer_tokens: int, conversation_id: str
    ) -> None:
        self._client = client
        self._socket = socket
        self._answer_tokens = answer_tokens
        self._id = conversation_id

    def resumed(self) -> AbstractContextManager[Talk]:
        return _conversing(self._socket, self._answer_tokens, self._id)

    def say(self, text: str, is_enough: IsEnough | None = None) -> Heard:
        is_enough = is_enough or never
        heard_at: list[float] = []
        prompt: PromptEvaluated | None = None
        sent_at = now()
        stream = self._client.stream(SendMessage(text=text, conversation_id=self._id))
        for event in stream:
            if isinstance(event, TextDelta):
                heard_at.append(now())
                if is_enough(len(heard_at)):
                    return Heard(sent_at=sent_at, heard_at=tuple(heard_at), ended_at=heard_at[-1])
            elif isinstance(event, PromptEvaluated):
                prompt = event
        ended_at = now()
        finished = stream.result
        tokens = finished.usage.completion_tokens
        if finished.stop_reason != "length" or tokens != self._answer_tokens or prompt is None:
            raise BenchError(
                f"clawd ended ({finished.stop_reason}) after {tokens} tokens, "
                f"expected length after {self._answer_tokens}"
            )
        self._id = finished.conversation_id
        return Heard(
            sent_at=sent_at,
            heard_at=tuple(heard_at),
            ended_at=ended_at,
            tokens=tokens,
            prompt_tokens=prompt.tokens,
            cached_tokens=prompt.cached,
            text=finished.text,
        )
