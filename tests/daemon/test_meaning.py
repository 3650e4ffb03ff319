"""A daemon that searches by meaning: it indexes by itself, finds, says how far it is, and stops."""

import asyncio
from pathlib import Path

import pytest

from clawd.wire.daemon import Status
from clawd.wire.memory import SearchMemory
from clawd.wire.turns import SendMessage
from tests.support.inprocess import daemon_in
from tests.support.minilm import MINILM

pytestmark = [pytest.mark.daemon, pytest.mark.real_model, pytest.mark.minilm]

TABLES = f"""
[providers.models.near]
kind = "local"
model = "{MINILM}"

[memory]
embedding = "near"

[engine]
n_threads = 1
"""
LIMIT_S = 60.0
SAID = "The plumber fixed the leaking tap under the kitchen sink."
ASKED = "water dripping repair"


async def test_what_was_said_is_found_in_other_words_and_status_tells_how_much_is_indexed(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path, TABLES) as inside:
        await inside.ask(SendMessage(text=SAID))
        async with asyncio.timeout(LIMIT_S):
            while True:
                meaning = (await inside.ask(Status())).meaning
                assert meaning is not None
                assert (meaning.model, meaning.problem) == ("near", "")
                if meaning.messages == 2 and meaning.indexed == 2:
                    break
                await asyncio.sleep(0.05)
        hits = await inside.ask(SearchMemory(query=ASKED))
        assert hits.items[0].snippet == SAID
        inside.daemon.estop.set("a test")
        assert (await inside.ask(SearchMemory(query=ASKED))).items == ()
        inside.daemon.estop.clear()
        assert (await inside.ask(SearchMemory(query="qwxz blorf"))).items == ()
