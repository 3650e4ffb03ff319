"""Our side: a real daemon in a throwaway home, asked over its control socket."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawctl.client import Client, connect
from clawd.paths import layout
from clawd.wire.events import PromptEvaluated, TextDelta
from clawd.wire.turns import SendMessage
from tests.bench.engine_setup import EngineSetup
from tests.bench.streams import Answer, Ask, BenchError, now
from tests.support.home import Home

PROVIDER = "bench"
SYSTEM_PROMPT = "You are an assistant."


@contextmanager
def running_daemon(folder: Path, setup: EngineSetup | None = None) -> Iterator["Daemon"]:
    """Start a daemon; without a setup it has no model, only the mock."""
    folder.mkdir()
    home = Home(folder)
    # Turning warnings into errors costs a little at every start, which is measured too.
    del home.environ["PYTHONWARNINGS"]
    if setup is None:
        home.configure()
    else:
        home.configure(provider=PROVIDER, tables=_tables(setup))
    try:
        start(home)
        yield Daemon(home, answer_tokens=setup.answer_tokens if setup else 0)
    finally:
        home.close()


class Daemon:
    """A daemon that answers."""

    def __init__(self, home: Home, *, answer_tokens: int) -> None:
        self.home = home
        self.socket = layout(home.environ).socket
        self._answer_tokens = answer_tokens

    def restart(self) -> None:
        """End the daemon in order and start it again in the same home."""
        self.home.close()
        start(self.home)

    @contextmanager
    def open(self) -> Iterator[Ask]:
        """Connect; every question opens a conversation of its own."""
        with connect(self.socket) as client:
            yield lambda text: self._ask(client, text)

    def _ask(self, client: Client, text: str) -> Answer:
        sent_at = now()
        first_at = 0.0
        prompt: PromptEvaluated | None = None
        stream = client.stream(SendMessage(text=text))
        for event in stream:
            match event:
                case TextDelta() if not first_at:
                    first_at = now()
                case PromptEvaluated():
                    prompt = event
                case _:
                    pass
        ended_at = now()
        finished = stream.result
        tokens = finished.usage.completion_tokens
        if finished.stop_reason != "length" or tokens != self._answer_tokens or prompt is None:
            raise BenchError(
                f"clawd ended ({finished.stop_reason}) after {tokens} tokens, "
                f"expected length after {self._answer_tokens}"
            )
        return Answer(
            sent_at=sent_at,
            first_at=first_at,
            ended_at=ended_at,
            tokens=tokens,
            prompt_tokens=prompt.tokens,
            cached_tokens=prompt.cached,
        )


def start(home: Home) -> None:
    """Start the daemon of a home.

    Raises:
        BenchError: it did not start; the message is its log.
    """
    try:
        home.start()
    except AssertionError as error:
        raise BenchError(f"the daemon did not start: {home.log()[-2000:]}") from error


def _tables(setup: EngineSetup) -> str:
    speculation = f'speculation = "{setup.speculation}"\n' if setup.speculation else ""
    return f"""
[providers.models.{PROVIDER}]
kind = "local"
model = {json.dumps(str(setup.model))}

[channels.cli]
tools_allow = []

[agent]
system_prompt = "{SYSTEM_PROMPT}"

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
prefix_cache_disk_mb = {setup.prefix_cache_disk_mb}
{speculation}"""
