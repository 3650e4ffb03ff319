"""One conversation on the real thing: every hop evaluates what is new, whatever happens between."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.wire.events import HopUsage
from tests.support.calling_model import call, write_calling_gguf
from tests.support.home import Home
from tests.support.hops import lost_prefixes

pytestmark = [pytest.mark.daemon, pytest.mark.real_model]

ANSWER = "That is what memory and the folder hold."
TABLES = "[engine]\nctx_size = 16384\nn_threads = 1\nprefix_cache_disk_mb = 200"
# Twenty-five hours lie between the two, so the date is another one at every moment.
EARLY, LATE = "EARLY11", "LATE-14"


@pytest.fixture(scope="module")
def calling_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that searches memory, lists the folder, and answers."""
    path = tmp_path_factory.mktemp("model") / "caller.gguf"
    search = call("memory_search", '{"query": "adapter"}')
    return write_calling_gguf(path, search, call("file_list", "{}"), ANSWER)


def say(home: Home, text: str, *options: str) -> dict[str, Any]:
    answer: dict[str, Any] = home.json("agent", "-m", text, *options)
    return answer


def hops_of(*answers: dict[str, Any]) -> list[HopUsage]:
    return [msgspec.convert(hop, HopUsage) for answer in answers for hop in answer["hops"]]


def blocks(home: Home, conversation_id: str) -> list[str]:
    """Return the blocks of changed facts of a conversation's user messages."""
    with sqlite3.connect(f"file:{home.path}/memory.sqlite?mode=ro", uri=True) as memory:
        rows = memory.execute(
            "SELECT metadata FROM messages WHERE conversation_id = ? AND role = 'user' ORDER BY id",
            (conversation_id,),
        ).fetchall()
    memory.close()
    return [json.loads(metadata)["context_block"] for (metadata,) in rows]


def test_nine_hops_evaluate_what_is_new_over_memory_writes_dates_tools_and_a_restart(
    home: Home, calling_model: Path
) -> None:
    home.configure(provider="local", top='default_model = "caller"', tables=TABLES)
    (home.path / "models").mkdir()
    (home.path / "models" / "caller.gguf").symlink_to(calling_model)
    home.environ["TZ"] = EARLY
    home.start()
    first = say(home, "what do we know of the adapter?")
    conversation = ("--conversation", first["conversation_id"])
    say(home, "the adapter has a green plug", "--provider", "mock")
    (home.workspace / "plug.txt").write_text("green")
    second = say(home, "and now?", *conversation)

    home.close()
    home.environ["TZ"] = LATE
    home.start()
    third = say(home, "look again, please", *conversation)

    assert [turn["text"] for turn in (first, second, third)] == [ANSWER] * 3
    outputs = [[made["output"] for made in turn["tool_calls"]] for turn in (first, second, third)]
    assert ["green plug" in found for found, _ in outputs] == [False, True, True]
    assert ["plug.txt" in listed for _, listed in outputs] == [False, True, True]
    shown = blocks(home, first["conversation_id"])
    assert [block.startswith("date: ") for block in (shown[0], shown[2])] == [True, True]
    assert shown[0].splitlines()[0] != shown[2].splitlines()[0]

    hops = hops_of(first, second, third)
    assert len(hops) == 9
    assert lost_prefixes(hops) == []
    assert all(hop.reevaluated_tokens <= 1 for hop in hops)
    for turn in (first, second, third):
        usage, tokens = turn["usage"], {p["name"]: p["tokens"] for p in turn["ledger"]["parts"]}
        assert sum(tokens.values()) == usage["context_used"]
        assert turn["ledger"]["free"] == usage["context_size"] - usage["context_used"]
        assert not turn["ledger"]["is_estimate"]
