"""Closing a client in mid-answer gives its place to who waits for one."""

import time
from contextlib import ExitStack

import pytest

from clawd.wire.events import PromptProgress, TextDelta, TurnStarted
from tests.support.engine_home import LIMIT_S, EngineHome, Running, send
from tests.support.gguf_models import write_random_gguf
from tests.support.home import Home

pytestmark = [pytest.mark.daemon, pytest.mark.real_model]

STREAMS = 4


def test_a_client_that_goes_frees_its_place_for_the_one_that_waits(home: Home) -> None:
    engine = EngineHome(home)
    engine.configure("n_parallel = 4\nctx_size = 16384", max_tokens=100_000)
    write_random_gguf(
        engine.models / "endless.gguf", n_embd=256, n_layer=6, n_ff=768, is_printable=True
    )
    home.start()
    with ExitStack() as stack:
        clients = [stack.enter_context(engine.client()) for _ in range(STREAMS + 1)]
        *running, last = clients
        turns = []
        for client in running:
            turns.append(Running(client, send("go", "endless")))
            turns[-1].wait_for_pieces(1)
        waiting = last.stream(send("me too", "endless"))
        assert isinstance(waiting.wait(LIMIT_S), TurnStarted)
        seen = [turn.pieces for turn in turns]
        for turn, before in zip(turns, seen, strict=True):
            turn.wait_for_pieces(before + 20)
        # All others went on, and it did not begin.
        assert waiting.wait(0.01) is None
        left_at = time.monotonic()
        turns[0].leave()
        first = waiting.wait(LIMIT_S)
        took_ms = (time.monotonic() - left_at) * 1000
        assert isinstance(first, PromptProgress)
        while not isinstance(waiting.wait(LIMIT_S), TextDelta):
            pass
        assert [turn.has_ended for turn in turns[1:]] == [False] * (STREAMS - 1)
        # The daemon forgets the one that left a moment after the worker did.
        deadline = time.monotonic() + LIMIT_S
        while engine.loaded()["endless"].running != STREAMS:
            assert time.monotonic() < deadline
        print(f"\na place was free {took_ms:.1f} ms after its client left")
        for turn in turns[1:]:
            turn.leave()
    home.close()
