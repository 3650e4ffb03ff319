"""Bodies of any JSON: each is taken, or refused with the name of a field; none breaks a reader."""

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.channels.http.openai.chat import read_chat
from clawd.channels.http.openai.completions import read_completion
from clawd.channels.http.openai.responses import read_response
from clawd.errors import InvalidRequestError
from tests.channels.http.openai.recorded import CODEX_SECOND, LITELLM_HISTORY, OPENCODE_FIRST
from tests.support.rows import each_row

Read = Callable[[dict[str, Any], web.Request], Any]

RUBBISH: list[Any] = [[], {}, [[]], {"type": []}, 5, "x", None, True]
COMPLETION: dict[str, Any] = {
    "prompt": ["a", [1, 2]],
    "stream_options": {"include_usage": True},
    "logit_bias": {"5": 1.5, "6": -100},
    "stop": ["a"],
    "n": 2,
    "logprobs": 1,
    "max_tokens": 5,
    "json_schema": {"type": "object", "properties": {"a": {"items": [{"type": "string"}]}}},
}
CHAT: dict[str, Any] = {
    **OPENCODE_FIRST,
    "messages": [*OPENCODE_FIRST["messages"][1:], *LITELLM_HISTORY],
    "tools": OPENCODE_FIRST["tools"][:2],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "bash"}}],
        },
    },
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "a", "strict": True, "schema": {"anyOf": [{"type": "null"}]}},
    },
    "metadata": {"cost": "low"},
    "logprobs": True,
    "top_logprobs": 2,
    "modalities": ["text"],
}
RESPONSE: dict[str, Any] = {
    **CODEX_SECOND,
    "instructions": "x",
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
    "metadata": {"a": "b"},
    "top_logprobs": 2,
}
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["", "auto", "function", "text", "user", "json_schema", "5"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "function", "schema", "5"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, ...]]:
    """Return the paths to all parts of a JSON value."""
    found: list[tuple[Any, ...]] = []
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inner:
        found.append((key,))
        if isinstance(each, dict | list):
            found += [(key, *path) for path in places(each)]
    return found


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    copy = msgspec.json.decode(msgspec.json.encode(value))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other
    return copy


@each_row(
    ("read", "body"),
    [(read_chat, CHAT), (read_completion, COMPLETION), (read_response, RESPONSE)],
    ids=["chat", "completion", "response"],
)
def test_a_body_with_anything_anywhere_is_taken_or_refused(
    read: Read, body: dict[str, Any]
) -> None:
    request = make_mocked_request("POST", "/")
    everywhere = places(body)
    read(body, request)

    @settings(max_examples=400, deadline=None)
    @given(path=st.sampled_from(everywhere), other=VALUES)
    def check(path: tuple[Any, ...], other: Any) -> None:
        try:
            read(replaced(body, path, other), request)
        except InvalidRequestError as error:
            assert error.data and error.data["param"]

    check()
    for path in everywhere:
        for other in RUBBISH:
            try:
                read(replaced(body, path, other), request)
            except InvalidRequestError as error:
                assert error.data and error.data["param"]
