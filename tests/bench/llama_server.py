"""The peer: `python -m llama_cpp.server`, asked over its OpenAI door."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.engine_setup import EngineSetup
from tests.bench.streams import Answer, Ask, BenchError, now

HOST = "127.0.0.1"
PATH = "/v1/chat/completions"
START_LIMIT_S = 120.0
ANSWER_LIMIT_S = 300.0
FILLER = "a "


class _Delta(msgspec.Struct, frozen=True, kw_only=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    delta: _Delta
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, frozen=True, kw_only=True):
    choices: list[_Choice]


@contextmanager
def running_server(folder: Path, setup: EngineSetup) -> Iterator["LlamaServer"]:
    """Start the server and wait until it answers; its log is in the folder."""
    port = free_port()
    command = [sys.executable, "-m", "llama_cpp.server", *_options(setup, port)]
    hint = "Is it installed? pip install -e '.[bench]' brings it."
    with serving(command, port, folder / "llama_cpp.server.log", hint=hint):
        yield LlamaServer(port, answer_tokens=setup.answer_tokens)


@contextmanager
def serving(command: Sequence[str], port: int, log: Path, *, hint: str) -> Iterator["Server"]:
    """Run a server of the OpenAI interface, from its first answer on that port to the end."""
    server = Server(command, port, log, hint=hint)
    try:
        server.start()
        yield server
    finally:
        server.end()


class Server:
    """The process of a server; what it prints is added to the log."""

    def __init__(self, command: Sequence[str], port: int, log: Path, *, hint: str) -> None:
        self._command = command
        self._port = port
        self._log = log
        self._hint = hint
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process that runs now; 0 where none does."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it and wait until it answers."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self._log.parent), "LANG": "C.UTF-8"}
        with self._log.open("ab") as file:
            self._process = subprocess.Popen(
                self._command, env=environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        _wait_until_it_answers(self._process, self._port, self._log, self._hint)

    def end(self) -> None:
        """Kill it, for it keeps nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class LlamaServer:
    """A server that answers.

    Attributes:
        system_prompt: stands before every question; `match_prompt` sizes it.
    """

    def __init__(self, port: int, *, answer_tokens: int) -> None:
        self.port = port
        self.answer_tokens = answer_tokens
        self.system_prompt = FILLER

    @contextmanager
    def open(self) -> Iterator[Ask]:
        """Connect; every question is a conversation of its own."""
        connection = HTTPConnection(HOST, self.port, timeout=ANSWER_LIMIT_S)
        connection.connect()
        try:
            yield lambda text: self._ask(connection, text)
        finally:
            connection.close()

    def match_prompt(self, text: str, tokens: int) -> int:
        """Make the system prompt so long that a prompt with this text has that many tokens.

        Returns how many it has, which may be one or two off.
        """
        count = 1
        found = self._prompt_tokens(text)
        for _ in range(8):
            if found == tokens:
                break
            count = max(1, count + tokens - found)
            self.system_prompt = FILLER * count
            found = self._prompt_tokens(text)
        return found

    def _prompt_tokens(self, text: str) -> int:
        connection = HTTPConnection(HOST, self.port, timeout=ANSWER_LIMIT_S)
        body = self.body(text) | {"stream": False, "max_tokens": 1}
        try:
            connection.request("POST", PATH, json.dumps(body), JSON_HEADERS)
            return int(json.loads(connection.getresponse().read())["usage"]["prompt_tokens"])
        finally:
            connection.close()

    def _ask(self, connection: HTTPConnection, text: str) -> Answer:
        body = json.dumps(self.body(text))
        sent_at = now()
        first_at = 0.0
        reason: str | None = None
        connection.request("POST", PATH, body, JSON_HEADERS)
        response = connection.getresponse()
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            (choice,) = msgspec.json.decode(line[6:], type=_Chunk).choices
            if choice.delta.content and not first_at:
                first_at = now()
            reason = choice.finish_reason or reason
        ended_at = now()
        if reason != "length" or not first_at:
            raise BenchError(
                f"llama_cpp.server answered {response.status} and ended for {reason}, "
                f"expected length after {self.answer_tokens} tokens"
            )
        return Answer(
            sent_at=sent_at, first_at=first_at, ended_at=ended_at, tokens=self.answer_tokens
        )

    def body(self, text: str) -> dict[str, Any]:
        """Return the request that asks this in a conversation of its own."""
        return {
            "messages": [
                {"role": "system", "content": self.system_prompt},
                {"role": "user", "content": text},
            ],
            "stream": True,
            "temperature": 0.0,
            "repeat_penalty": 1.0,
            "max_tokens": self.answer_tokens,
        }


JSON_HEADERS = {"Content-Type": "application/json"}


def _options(setup: EngineSetup, port: int) -> list[str]:
    options = {
        "model": setup.model,
        "host": HOST,
        "port": port,
        "n_ctx": setup.context_tokens,
        "n_batch": setup.batch_tokens,
        "n_ubatch": setup.batch_tokens,
        "n_threads": setup.threads,
        "n_threads_batch": setup.threads,
        "n_gpu_layers": -1,
        "flash_attn": "true",
        # Scores of prompt tokens, which nobody asks for, would cost it time.
        "logits_all": "false",
        "use_mlock": "false",
        # Otherwise a second stream ends the first.
        "interrupt_requests": "false",
        "verbose": "false",
    }
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def free_port() -> int:
    """Return a port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _wait_until_it_answers(
    process: subprocess.Popen[bytes], port: int, log: Path, hint: str
) -> None:
    deadline = now() + START_LIMIT_S
    while not _answers(port):
        if process.poll() is not None or now() > deadline:
            raise BenchError(
                f"the server did not start: {log.read_text('utf-8', 'replace')[-2000:]}\n{hint}"
            )
        time.sleep(0.05)


def _answers(port: int) -> bool:
    connection = HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
