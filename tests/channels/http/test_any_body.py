"""Whatever a client sends as JSON is a request or refused with the place that is wrong."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from clawd.channels.http import anthropic as anthropic
from clawd.channels.http.body import MAX_ITEMS
from clawd.channels.http.model_api import ModelRequest
from clawd.channels.http.ollama import chat as ollama
from clawd.channels.http.openai.chat import read_chat
from clawd.errors import InvalidRequestError
from tests.support.rows import each_row

TOP = (
    "name messages system tools tool_choice max_tokens temperature top_k stop_sequences "
    "thinking output_config output_format format options keep_alive think prompt raw suffix "
    "template images"
)
INNER = (
    "role content type text tool_calls function name description input input_schema arguments "
    "parameters id tool_use_id tool_call_id tool_name is_error source data display schema stop "
    "seed num_predict top_k temperature disable_parallel_tool_use images"
)
WORDS = (
    "user assistant tool system text tool_use tool_result image document content custom thinking "
    "auto any none json json_schema function enabled 5m END"
)


def words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=3)
    | words(WORDS)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words(INNER), inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(words(INNER), VALUES, max_size=4), max_size=3)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": words(WORDS)}, optional={"content": VALUES | OBJECTS}),
    max_size=4,
)
BODIES = st.fixed_dictionaries(
    {"model": st.just("m")},
    optional=dict.fromkeys(TOP.split(), VALUES) | {"tools": OBJECTS, "messages": MESSAGES},
)


@pytest.mark.parametrize(
    "translate",
    [
        anthropic.request_of,
        anthropic.shows_thoughts,
        ollama.chat_request,
        ollama.generate_request,
        ollama.shows_thoughts,
        ollama.keep_alive_s,
    ],
)
@given(body=BODIES)
def test_any_body_is_a_request_or_refused(
    translate: Callable[[dict[str, Any]], Any], body: dict[str, Any]
) -> None:
    try:
        found = translate(body)
    except InvalidRequestError as error:
        assert error.message
        return
    if isinstance(found, ModelRequest):
        # The engine is told of it in this form, which knows no longer numbers.
        assert msgspec.msgpack.encode(found)


def read_openai(body: dict[str, Any]) -> object:
    return read_chat(body, make_mocked_request("POST", "/v1/chat/completions"))


@each_row("translate", [anthropic.request_of, ollama.chat_request, read_openai])
@each_row("name", ["messages", "tools"])
def test_lists_that_nobody_can_mean_are_refused_before_they_are_looked_at(
    translate: Callable[[dict[str, Any]], object], name: str
) -> None:
    """Each of these would be looked at where everybody else waits to be answered."""
    said = {"role": "user", "content": "x"}
    tool = {"name": "t", "input_schema": {}, "type": "function", "function": {"name": "t"}}
    lists: dict[str, list[dict[str, Any]]] = {"messages": [said], "tools": [tool]}
    lists[name] *= MAX_ITEMS + 1
    with pytest.raises(InvalidRequestError, match=f"{name}: {MAX_ITEMS + 1} of them"):
        translate({"model": "m", "max_tokens": 1, **lists})
