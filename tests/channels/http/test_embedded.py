"""The embedded model over HTTP: exact counts, the same text both ways, a prefix that stays warm."""

from pathlib import Path
from typing import Any

import pytest

from clawd.providers.base import Tokenizing
from clawd.wire.events import HopFinished
from tests.channels.http.plain import ROUTES, Chat, lines_of
from tests.channels.http.rig import Served, served
from tests.support.calling_model import call, write_calling_gguf
from tests.support.inprocess import OWNER

pytestmark = pytest.mark.real_model
pytest.importorskip("llama_cpp")

ANSWER = "That is all I found about it."
# Room for the offered tools and two turns, which the built-in 8192 is not for every tokeniser.
ENGINE = "[engine]\nctx_size = 16384\ntemperature = 0.0\nprefix_cache_disk_mb = 0\n"


async def both_ways(door: Served, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a whole answer and a streamed one: text, end, and what was read and written."""
    found = []
    _, whole = await door.post("/say", body)
    _, text = await door.stream("/say", {**body, "stream": True})
    lines = lines_of(text)
    streamed = {
        "text": "".join(each.get("text", "") for each in lines),
        "end": lines[-1]["end"],
        "usage": lines[-1]["usage"],
    }
    for told in (whole, streamed):
        told["usage"].pop("cached_tokens")  # what was said before makes work cheaper, no more
        found.append({name: told[name] for name in ("text", "end", "usage")})
    return found[0], found[1]


async def test_a_streamed_answer_is_the_whole_one(tmp_path: Path) -> None:
    async with served(tmp_path, tables=ENGINE, routes=ROUTES) as door:
        for fields in ({"is_plain": True}, {}, {"tools": ["get_weather"]}):
            asked = {"model": "embedded", "messages": [["user", "What is 6 * 7?"]], **fields}
            whole, streamed = await both_ways(door, asked)
            assert whole == streamed


async def test_the_usage_is_the_count_of_the_models_own_tokenizer(tmp_path: Path) -> None:
    async with served(tmp_path, tables=ENGINE, routes=ROUTES) as door:
        for fields in ({"is_plain": True}, {"tools": ["get_weather"], "system": "Be brief. ßé"}):
            asked = {"model": "embedded", "messages": [["user", "Hello, you!"]], **fields}
            _, told = await door.post("/say", asked)
            _, counted = await door.post("/count", asked)
            assert told["usage"]["prompt_tokens"] == counted["tokens"]
        provider = door.inside.daemon.state.providers["local"]
        assert isinstance(provider, Tokenizing)
        asked = {"model": "embedded", "messages": [["user", "Hello"]], "is_plain": True}
        _, told = await door.post("/say", asked)
        said = await provider.tokenize(
            "embedded", told["text"], add_special=False, parse_special=False
        )
        assert told["usage"]["completion_tokens"] - len(said.tokens) in {0, 1}  # the end's own


async def test_the_second_turn_of_a_chat_finds_the_first_in_the_cache(tmp_path: Path) -> None:
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    write_calling_gguf(models / "caller.gguf", call("file_list", '{"path": "."}'), ANSWER)
    async with served(tmp_path, tables=ENGINE, routes=ROUTES) as door:
        chat = Chat(door, model="caller")
        assert ANSWER in await chat.say("What is here?")
        live = await door.inside.daemon.inbox.book.load(chat.conversation, OWNER)
        following = live.broadcast.subscribe()
        await chat.say("And now?", stream=True)
        live.broadcast.unsubscribe(following)
        hops = [event.usage async for event in following if isinstance(event, HopFinished)]
        # The client knows nothing of the tool rounds, and nothing of them is read again.
        assert [hop.reevaluated_tokens for hop in hops] == [0, 0]
        assert chat.usage["cached_tokens"] == sum(hop.cached_tokens for hop in hops) > 0
        assert chat.usage["prompt_tokens"] == sum(hop.prompt_tokens for hop in hops)
        roles = [message.role for message in live.context.messages]
        assert roles == ["user", "assistant", "tool", "assistant"] * 2
        # To ask again forks where the question was asked: the same prefix, as far as it goes.
        again = chat.copy(2)
        await again.say("And now?")
        assert again.conversation != chat.conversation
        assert again.usage["prompt_tokens"] == chat.usage["prompt_tokens"]
        assert again.usage["cached_tokens"] >= chat.usage["cached_tokens"]
