"""Pictures in requests: each provider sends them in its own form, and none drops one."""

import base64
from typing import Any

import pytest

from clawd.config.schema import ProviderSection
from clawd.engine.protocol import Sampling
from clawd.providers import anthropic, openai
from clawd.providers.base import ChatRequest, Message, ToolCall, ToolSpec, without_tool_role
from clawd.providers.local_request import LocalOptions, generate_for
from clawd.providers.scripted import ScriptedProvider, parse_script
from tests.support.collecting import collect
from tests.support.pictures import picture

ONE, TWO = picture(), picture(4, 4, shade=9)
SHOT = ToolSpec(name="shot", description="", parameters={"type": "object"})
ASKED = (
    Message(role="user", content="What is it?", pictures=(ONE,)),
    Message(role="assistant", tool_calls=(ToolCall(id="a", name="shot"),)),
    Message(role="tool", content="taken", tool_call_id="a", name="shot", pictures=(TWO,)),
)


def url(data: bytes) -> dict[str, Any]:
    address = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": address}}


def block(data: bytes) -> dict[str, Any]:
    written = base64.b64encode(data).decode()
    source = {"type": "base64", "media_type": "image/png", "data": written}
    return {"type": "image", "source": source}


def test_openai_takes_pictures_before_the_text_and_those_of_results_after_them() -> None:
    sent = openai.build_body(ChatRequest(messages=ASKED), model="m", stream=True)["messages"]
    user, _, result, shown = sent
    assert user["content"] == [url(ONE.data), {"type": "text", "text": "What is it?"}]
    assert result == {"role": "tool", "tool_call_id": "a", "content": "taken"}
    told = {"type": "text", "text": "[pictures of tool: shot]"}
    assert shown == {"role": "user", "content": [told, url(TWO.data)]}


def test_openai_keeps_the_results_of_a_round_together() -> None:
    calls = (ToolCall(id="a", name="shot"), ToolCall(id="b", name="shot"))
    results = tuple(
        Message(role="tool", content=each.id, tool_call_id=each.id, name="shot", pictures=(TWO,))
        for each in calls
    )
    history = (Message(role="assistant", tool_calls=calls), *results)
    history = (*history, Message(role="user", content="and?"))
    sent = openai.build_body(ChatRequest(messages=history), model="m", stream=True)["messages"]
    assert [each["role"] for each in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert [part for part in sent[3]["content"] if part["type"] == "image_url"] == (
        [url(TWO.data)] * 2
    )


@pytest.mark.parametrize("tools", [(SHOT,), ()])
def test_anthropic_takes_pictures_as_blocks(tools: tuple[ToolSpec, ...]) -> None:
    body = anthropic.build_body(
        ChatRequest(messages=ASKED, tools=tools),
        model="m",
        section=ProviderSection(kind="anthropic"),
        kept=lambda _message: None,
    )
    first, _, last = body["messages"]
    assert first["content"][0] == block(ONE.data)
    assert first["content"][1]["text"] == "What is it?"
    if tools:
        assert last["content"][0]["content"] == [
            block(TWO.data),
            {"type": "text", "text": "taken"},
        ]
    else:
        assert last["content"][0] == block(TWO.data)
        assert last["content"][1]["text"] == "[tool: shot]\ntaken"


def test_without_the_tool_role_pictures_of_results_go_with_what_the_user_says_next() -> None:
    said = Message(role="user", content="and now?", pictures=(ONE,))
    *_, last = without_tool_role((*ASKED, said))
    assert last.pictures == (TWO, ONE)
    assert last.content == "[tool: shot]\ntaken\n\nand now?"
    *_, alone = without_tool_role(ASKED)
    assert (alone.role, alone.pictures) == ("user", (TWO,))


async def test_a_script_tells_which_pictures_it_was_shown() -> None:
    script = parse_script('{"replies": [{"text": "{{pictures}}"}]}')
    answer = await collect(ScriptedProvider(script=script).chat(ChatRequest(messages=ASKED)))
    assert answer.final_text.split("\n") == [
        f"image/png 3x2 {ONE.sha256}",
        f"image/png 4x4 {TWO.sha256}",
    ]


def test_a_model_of_this_machine_gets_them_as_they_are() -> None:
    sent = generate_for(ChatRequest(messages=ASKED), Sampling(), LocalOptions())
    assert [message.pictures for message in sent.messages] == [(ONE,), (), (TWO,)]
