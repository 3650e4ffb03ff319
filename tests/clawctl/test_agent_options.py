"""What the options of `clawctl agent` chose reaches the message whole."""

from typing import Any

import msgspec

from clawctl.agent_options import Choice
from clawd.wire.pictures import Document
from clawd.wire.turns import SamplingWishes, SendMessage

CHOSEN: dict[str, Any] = {
    "workspace": "/w",
    "agent": "a",
    "provider": "p",
    "model": "m",
    "preset": "wild",
    "hints": {"cost": "low"},
    "sampling": SamplingWishes(temperature=0.5),
    "tools_allow": ("file_*",),
    "tool_mode": "both",
    "retry": False,
    "think": "high",
    "tool_choice": "required",
    "url": "http://127.0.0.1:9/v1",
    "mode": "edits",
    "max_rounds": 7,
    "pictures": (b"png",),
    "plan_first": True,
    "documents": (Document(name="a.pdf", data=b"%PDF-"),),
    "allowed_tools": ("shell",),
}
UNSET = {"detach", "system", "untrusted", "files", "client"}
"""What no option of the command chooses."""


def test_every_field_of_a_message_is_chosen_by_an_option_or_left_as_it_is() -> None:
    sent = Choice(**CHOSEN).message("hi", "conv-1", interactive=False)
    given = {"text": "hi", "conversation_id": "conv-1", "interactive": False}
    plain = SendMessage(text="hi")
    assert set(SendMessage.__struct_fields__) == {*CHOSEN, *given, *UNSET}
    for name, value in {**CHOSEN, **given}.items():
        assert getattr(sent, name) == value, name
        assert name in given or value != getattr(plain, name), name  # else it would prove nothing
    for name in UNSET:
        assert getattr(sent, name) == getattr(plain, name), name
    assert msgspec.structs.asdict(Choice().message("hi", "", interactive=False)) == (
        msgspec.structs.asdict(plain)
    )
