"""The gateway beside llama-server: the same file, the same requests, in turn.

Both get the same /v1/chat/completions with their own cache of prefixes: cold is a prompt that is
new to both, warm the same prompt once more. One pass, so the prompts are the same tokens.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.bench.engine_setup import EngineSetup, write_model
from tests.bench.http.client import Connection, request_bytes
from tests.bench.http.daemon import INJECT_OFF, running_gateway
from tests.bench.http.dialects import CHAT, Asked, Told, told
from tests.bench.http.rows import row
from tests.bench.http.scale import Scale
from tests.bench.llama.peer import running_peer
from tests.bench.llama.talk import words
from tests.bench.report import Row
from tests.bench.streams import BenchError

PROVIDER = "bench"
STREAMS = 4
T = TypeVar("T")


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """What this part of a run needs."""

    folder: Path
    binaries: Path
    threads: int
    scale: Scale


def rows(peers: Peers, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure all of them, in rounds of one stream and of several."""
    folder = peers.folder / "llama"
    folder.mkdir()
    setup = EngineSetup(
        model=write_model(folder / "random.gguf", layers=peers.scale.layers),
        answer_tokens=peers.scale.answer_tokens,
        streams=STREAMS,
        threads=peers.threads,
        context_tokens=4096,
    )
    with (
        running_gateway(folder / "ours", provider=PROVIDER, tables=_tables(setup)) as gateway,
        running_peer(peers.binaries, folder, setup) as server,
    ):
        ours = Side(gateway.port, setup, is_ours=True)
        peer = Side(server.port, setup, is_ours=False)
        _pair(ours, peer, partial(Side.ask, text=words(peers.scale.prompt_words, "before")))
        yield from _measured(ours, peer, peers.scale, wanted)


def _measured(ours: "Side", peer: "Side", scale: Scale, wanted: Sequence[str]) -> Iterator[Row]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in wanted}

    def note(name: str, pair: tuple[float, float]) -> None:
        if name in found:
            found[name].append(pair)

    for number in range(scale.pairs):
        text = words(scale.prompt_words, f"prompt {number}")
        cold = _pair(ours, peer, partial(Side.ask, text=text))
        warm = _pair(ours, peer, partial(Side.ask, text=text))
        if cold[0].counts != cold[1].counts:
            raise BenchError(f"tokens of prompt and answer: {cold[0].counts}, {cold[1].counts}")
        note("llama_first_cold", (cold[0].first_ms, cold[1].first_ms))
        note("llama_first_warm", (warm[0].first_ms, warm[1].first_ms))
        note("llama_rate_1", (_rate([warm[0]]), _rate([warm[1]])))
        if "llama_rate_4" in found:
            texts = [words(scale.prompt_words, f"{number} of {each}") for each in range(STREAMS)]
            pair = _pair(ours, peer, partial(Side.ask_together, texts=texts))
            note("llama_rate_4", (_rate(pair[0]), _rate(pair[1])))
    yield from (row(name, pairs) for name, pairs in found.items())


class Side:
    """One of the two servers."""

    def __init__(self, port: int, setup: EngineSetup, *, is_ours: bool) -> None:
        self._port = port
        self._setup = setup
        self._headers = INJECT_OFF if is_ours else ()

    def ask(self, text: str) -> Told:
        """Ask on a connection that is open before the clock starts.

        Raises:
            BenchError: the answer has another length than was asked for.
        """
        with self._open() as connection:
            return self._asked(connection, text)

    def ask_together(self, texts: Sequence[str]) -> list[Told]:
        """Ask everything at once."""
        with ThreadPoolExecutor(len(texts)) as pool:
            return list(pool.map(self.ask, texts))

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        """Connect; who it is that asks is found out once a connection, before the clock starts.

        llama-server closes a connection after a stream, so each request has one of its own.
        """
        with closing(Connection(self._port)) as connection:
            connection.ask(request_bytes(self._port, "/tokenize", {"content": "a"}))
            yield connection

    def _asked(self, connection: Connection, text: str) -> Told:
        tokens = self._setup.answer_tokens
        asked = Asked(text=text, model=PROVIDER, stream=True, tokens=tokens)
        # Greedy by the shortest way that either server knows.
        body = CHAT.body(asked) | {"top_k": 1}
        if not self._headers:
            body |= {"samplers": ["top_k"]}
        request = request_bytes(self._port, CHAT.path, body, self._headers)
        answer = told(CHAT, connection.ask(request), stream=True)
        if answer.counts[1] != tokens:
            raise BenchError(f"an answer has {answer.counts[1]} tokens, expected {tokens}")
        return answer


def _pair(ours: Side, peer: Side, ask: Callable[[Side], T]) -> tuple[T, T]:
    return ask(ours), ask(peer)


def _rate(answers: Sequence[Told]) -> float:
    """Return tokens a second of all answers together, from the first request to the last byte."""
    began = min(answer.sent_at for answer in answers)
    ended = max(answer.ended_at for answer in answers)
    return sum(answer.counts[1] for answer in answers) / (ended - began)


def _tables(setup: EngineSetup) -> str:
    return f"""
[providers.models.{PROVIDER}]
kind = "local"
model = {json.dumps(str(setup.model))}

[engine]
keep_alive_s = 0
ctx_size = {setup.context_tokens}
n_parallel = {setup.streams}
n_batch = {setup.batch_tokens}
n_ubatch = {setup.batch_tokens}
n_threads = {setup.threads}
flash_attn = "on"
temperature = 0.0
max_tokens = {setup.answer_tokens}
"""
