"""Conversations with llama-server, over its OpenAI door."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.engine_setup import EngineSetup
from tests.bench.llama.talk import Heard, IsEnough, Talk, never
from tests.bench.llama_server import (
    ANSWER_LIMIT_S,
    HOST,
    JSON_HEADERS,
    PATH,
    LlamaServer,
    Server,
    free_port,
    serving,
)
from tests.bench.memory import memory_mb
from tests.bench.streams import BenchError, now

HINT = "`make bench-engine` builds it; without make, name its folder with --binaries."


class _Delta(msgspec.Struct, frozen=True, kw_only=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    delta: _Delta
    finish_reason: str | None = None


class _Timings(msgspec.Struct, frozen=True, kw_only=True):
    cache_n: int
    prompt_n: int
    predicted_n: int


class _Chunk(msgspec.Struct, frozen=True, kw_only=True):
    choices: list[_Choice]
    timings: _Timings | None = None


@contextmanager
def running_peer(binaries: Path, folder: Path, setup: EngineSetup) -> Iterator["Peer"]:
    """Start llama-server and wait until it answers; its log is in the folder."""
    port = free_port()
    command = [str(binaries / "llama-server"), *_options(setup, port)]
    with serving(command, port, folder / "llama-server.log", hint=HINT) as server:
        yield Peer(server, port, setup)


class Peer(LlamaServer):
    """A llama-server that answers."""

    def __init__(self, server: Server, port: int, setup: EngineSetup) -> None:
        super().__init__(port, answer_tokens=setup.answer_tokens)
        self._server = server
        self._model = setup.model

    @property
    def pid(self) -> int:
        """Return its process."""
        return self._server.pid

    def restart(self) -> None:
        """End the server and start it again; it keeps nothing."""
        self._server.end()
        self._server.start()

    def memory_mb(self) -> float:
        """Return what it takes in RAM."""
        return memory_mb(self._server.pid, self._model)

    @contextmanager
    def talk(self) -> Iterator[Talk]:
        """Open a conversation of its own."""
        yield _Conversation(self)

    def body(self, text: str) -> dict[str, Any]:
        """Return a request; greedy by the shortest way that the server's samplers know."""
        return super().body(text) | {"samplers": ["top_k"], "top_k": 1}


class _Conversation:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._past: list[dict[str, str]] = []

    @contextmanager
    def resumed(self) -> Iterator[Talk]:
        # Its past is sent with every turn, on a connection of its own.
        yield self

    def say(self, text: str, is_enough: IsEnough | None = None) -> Heard:
        body = self._peer.body(text)
        system, question = body["messages"]
        payload = json.dumps(body | {"messages": [system, *self._past, question]})
        # The server closes a connection after a streamed answer, so each turn has one of its own,
        # open before the clock starts.
        connection = HTTPConnection(HOST, self._peer.port, timeout=ANSWER_LIMIT_S)
        connection.connect()
        try:
            return self._hear(connection, payload, question, is_enough or never)
        finally:
            connection.close()

    def _hear(
        self,
        connection: HTTPConnection,
        payload: str,
        question: dict[str, str],
        is_enough: IsEnough,
    ) -> Heard:
        heard_at: list[float] = []
        pieces: list[str] = []
        last: _Chunk | None = None
        sent_at = now()
        connection.request("POST", PATH, payload, JSON_HEADERS)
        response = connection.getresponse()
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            last = msgspec.json.decode(line[6:], type=_Chunk)
            if last.choices and last.choices[0].delta.content:
                heard_at.append(now())
                pieces.append(last.choices[0].delta.content)
                if is_enough(len(heard_at)):
                    return Heard(sent_at=sent_at, heard_at=tuple(heard_at), ended_at=heard_at[-1])
        ended_at = now()
        timings = self._timings(last, response.status)
        self._past += [question, {"role": "assistant", "content": "".join(pieces)}]
        return Heard(
            sent_at=sent_at,
            heard_at=tuple(heard_at),
            ended_at=ended_at,
            tokens=timings.predicted_n,
            prompt_tokens=timings.cache_n + timings.prompt_n,
            cached_tokens=timings.cache_n,
            text="".join(pieces),
        )

    def _timings(self, last: _Chunk | None, status: int) -> _Timings:
        expected = self._peer.answer_tokens
        timings = last.timings if last is not None else None
        if timings is None or timings.predicted_n != expected:
            raise BenchError(
                f"llama-server answered {status} and ended with {timings}, "
                f"expected {expected} tokens"
            )
        return timings


def _options(setup: EngineSetup, port: int) -> list[str]:
    """Return what both engines are told alike; all else is the server's own default.

    Its batch of 2,048 tokens too, by which it decides how long a prompt holds up other streams.
    """
    options = {
        "--model": setup.model,
        "--host": HOST,
        "--port": port,
        "--ctx-size": setup.context_tokens * (1 if setup.kv_unified else setup.streams),
        "--parallel": setup.streams,
        "--threads": setup.threads,
        "--threads-batch": setup.threads,
        "--ubatch-size": setup.batch_tokens,
        "--flash-attn": "on",
    }
    words = [word for name, value in options.items() for word in (name, str(value))]
    unified = ["--kv-unified"] if setup.kv_unified else []
    return [*words, *unified, "--no-ui", "--offline"]
