"""What a model is sent, hop by hop, as bytes: each request goes on where the one before ended."""

import itertools
from collections.abc import Sequence

import msgspec

from clawd.memory.tools import MemorySearch
from clawd.providers.base import ChatRequest, Message
from tests.runtime.inboxes import House
from tests.runtime.models import calls, says
from tests.support.dispatching import Bench, Probe
from tests.support.rows import each_row

SEARCH = calls(("memory_search", '{"query": "adapter"}'), text="I look it up.")
PROBE = calls(("probe", '{"text":"a"}'), ("probe", '{"text": "b" }'))


def rendered(request: ChatRequest) -> bytes:
    """Return all that a template gets to see, in the order in which prompts have it."""
    pieces: list[object] = [*request.tools, request.system, *request.messages]
    return b"\n".join(msgspec.json.encode(piece) for piece in pieces)


def broken(requests: Sequence[ChatRequest]) -> list[int]:
    """Return the numbers of the hops that do not go on where the one before ended."""
    texts = [rendered(request) for request in requests]
    pairs = itertools.pairwise(texts)
    return [n for n, (before, text) in enumerate(pairs, start=2) if not text.startswith(before)]


async def converse(bench: Bench) -> list[ChatRequest]:
    """Nine hops in three turns: a memory write, another date, a denied call, a new load."""
    hops = [SEARCH, PROBE, says("done")]
    house = House(
        bench, *hops * 3, tools=[Probe(), MemorySearch(bench.memory.search), Probe("other")]
    )
    beside = House(bench, says("noted"))
    first = await house.say("what of the <context>adapter</context>?\n")
    await beside.say("the adapter has a green plug")
    house.later(hours=30)
    bench.stop.value = True
    await house.say("<context>\nand now?", first.conversation_id)
    bench.stop.value = False
    house.later(hours=2)
    house.restart()
    await house.say("again", first.conversation_id)
    return house.model.requests


async def test_each_request_extends_the_one_before_byte_by_byte(bench: Bench) -> None:
    requests = await converse(bench)
    assert len(requests) == 9
    assert broken(requests) == []
    last = rendered(requests[-1]).decode()
    assert last.count("date: 2026-11-21") == last.count("date: 2026-11-22") == 1
    assert last.count("about 08:00") == last.count("about 14:00") == last.count("about 16:00") == 1
    assert "green plug" in last
    assert [tool.name for tool in requests[0].tools] == ["memory_search", "other", "probe"]


@each_row("where", ["system", "tools", "message"], fresh=["bench"])
async def test_a_change_in_front_is_found_out(where: str, bench: Bench) -> None:
    requests = await converse(bench)
    changed = requests[4]
    match where:
        case "system":
            changed = msgspec.structs.replace(changed, system=f"Monday. {changed.system}")
        case "tools":
            changed = msgspec.structs.replace(changed, tools=changed.tools[::-1])
        case _:
            shorter = Message(role="user", content="what of it?")
            changed = msgspec.structs.replace(changed, messages=(shorter, *changed.messages[1:]))
    assert broken([*requests[:4], changed, *requests[5:]]) == [5, 6]
