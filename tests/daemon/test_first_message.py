"""The first message after a start, on the real model with the default config: what it costs."""

import time
from pathlib import Path

import pytest

from clawctl.client import connect
from clawd.paths import layout
from clawd.wire.events import PromptEvaluated
from clawd.wire.models import ListLoadedModels, LoadedModel
from clawd.wire.turns import SendMessage
from tests.support.home import Home
from tests.support.smollm2 import NAME, smollm2_provider

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.real_model,
    pytest.mark.smollm2,
    pytest.mark.timeout(300),
]

LIMIT_S = 240.0
CHECKOUT = Path(__file__).parents[2]
SHORT = "[engine]\nn_threads = 1\nmax_tokens = 4\n"
# When it is read ahead is asked here, not how much.
BARE = '[channels.cli]\ntools_allow = []\n[agent]\nsystem_prompt = "You help."\n' + SHORT
MOST_TOKENS = 1_200


def started(home: Home, provider: str, tables: str) -> None:
    home.environ.pop("CLAWD_ENGINE__PRELOAD", None)
    home.workspace = CHECKOUT
    home.configure(provider=provider, tables=tables)
    home.start()


def warm(home: Home) -> LoadedModel:
    """Return the model once the beginning of prompts is read; nobody has asked it anything."""
    deadline = time.monotonic() + LIMIT_S
    with connect(layout(home.environ).socket) as client:
        while time.monotonic() < deadline:
            for model in client.call(ListLoadedModels()).items:
                if 0 < model.warm_tokens == model.warm_ready:
                    return model
            time.sleep(0.05)
    raise AssertionError(f"nothing was read ahead within {LIMIT_S:g} s")


def evaluated(home: Home, text: str, folder: Path = CHECKOUT) -> PromptEvaluated:
    with connect(layout(home.environ).socket) as client:
        events = list(client.stream(SendMessage(text=text, workspace=str(folder))))
    return next(event for event in events if isinstance(event, PromptEvaluated))


@pytest.mark.long
def test_r4_the_first_message_after_a_start_costs_its_own_tokens_and_a_restart_reads_the_rest(
    home: Home,
) -> None:
    started(home, NAME, smollm2_provider(SHORT))
    model = warm(home)
    assert (model.completion_tokens, model.warm_restored) == (0, 0)
    assert 500 < model.warm_tokens < MOST_TOKENS
    first = evaluated(home, "Say hi")
    assert first.tokens < MOST_TOKENS
    assert first.tokens - first.cached <= 16
    home.close()
    (kept,) = (home.path / "cache" / "prefix").iterdir()
    assert b"Say hi" not in kept.read_bytes()
    home.start()
    again = warm(home)
    # What changes with the hour stands behind what is kept.
    assert again.warm_tokens - 64 < again.warm_restored < again.warm_tokens
    second = evaluated(home, "Say hi")
    assert second.tokens - second.cached <= 16
    elsewhere = evaluated(home, "Say hi", CHECKOUT / "docs")
    assert elsewhere.tokens - elsewhere.cached <= 64


def test_r4_without_preload_a_model_is_loaded_by_its_first_message_and_read_ahead_then(
    home: Home,
) -> None:
    started(home, NAME, smollm2_provider(BARE + "preload = false\n"))
    with connect(layout(home.environ).socket) as client:
        assert client.call(ListLoadedModels()).items == ()
    evaluated(home, "Say hi")
    assert warm(home).warm_ready > 8
