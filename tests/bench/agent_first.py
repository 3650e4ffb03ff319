"""The first message after a start of the daemon, on the real model with the default config.

The workspace is this checkout. A daemon is started, what it reads ahead is waited for, and then a
message is sent and a second one in the same conversation; the next pair starts it anew.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from clawctl.client import Client, connect
from clawd.paths import layout
from clawd.wire.events import (
    Event,
    PromptEvaluated,
    ReasoningDelta,
    TextDelta,
    ToolDraft,
    ToolRequested,
    TurnStarted,
)
from clawd.wire.models import ListLoadedModels
from clawd.wire.turns import SendMessage
from tests.support.home import Home

SAID = "Say hi"
LIMIT_S = 300.0
# What reading ahead leaves to do (writing a file) is over by then.
SETTLED_S = 2.0
_CHECKOUT = Path(__file__).parents[2]
_ANSWERED = (TextDelta, ReasoningDelta, ToolDraft, ToolRequested)


class FirstMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One start.

    Attributes:
        first_s: from sending the first message to the first of its answer; second_s the next one's.
        tokens: of the first prompt.
        new_tokens: of these those that were not evaluated before it was sent.
    """

    first_s: float
    second_s: float
    tokens: int
    new_tokens: int


def first_messages(folder: Path, model: Path, count: int) -> Iterator[FirstMessage]:
    """Measure so many starts on a model's file.

    Raises:
        RuntimeError: nothing was read ahead.
    """
    folder.mkdir(parents=True, exist_ok=True)
    home = Home(folder)
    home.environ.pop("CLAWD_ENGINE__PRELOAD")
    home.workspace = _CHECKOUT
    table = f'[providers.models.real]\nkind = "local"\nmodel = "{model.resolve()}"\n'
    home.configure(provider="real", tables=table)
    try:
        for _ in range(count):
            home.start()
            with connect(layout(home.environ).socket) as client:
                _await_warm(client)
                first_s, events = _said(client, "")
                conversation = next(e for e in events if isinstance(e, TurnStarted)).conversation_id
                second_s, _ = _said(client, conversation)
            prompt = next(event for event in events if isinstance(event, PromptEvaluated))
            yield FirstMessage(
                first_s=first_s,
                second_s=second_s,
                tokens=prompt.tokens,
                new_tokens=prompt.tokens - prompt.cached,
            )
            home.close()
    finally:
        home.close()


def _await_warm(client: Client) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        models = client.call(ListLoadedModels()).items
        if any(0 < model.warm_tokens == model.warm_ready for model in models):
            time.sleep(SETTLED_S)
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing was read ahead within {LIMIT_S:g} s")


def _said(client: Client, conversation_id: str) -> tuple[float, list[Event]]:
    """Return the time to the first of an answer, and all events of it."""
    began = time.monotonic()
    taken_s = 0.0
    events: list[Event] = []
    for event in client.stream(SendMessage(text=SAID, conversation_id=conversation_id)):
        if not taken_s and isinstance(event, _ANSWERED):
            taken_s = time.monotonic() - began
        events.append(event)
    return taken_s, events
