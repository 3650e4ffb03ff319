"""A daemon whose model is behind Anthropic's messages: a turn with a call, a check, a wrong key."""

import pytest

from tests.support.chat_server import Answer, ChatServer, in_a_thread
from tests.support.home import Home
from tests.support.message_server import answered, begin, call, end, serving, text, thought

pytestmark = pytest.mark.daemon

SECTION = """
[providers.models.claude]
kind = "anthropic"
model = "m"
base_url = "{url}"
api_key_env = "MESSAGES_KEY"
thinking = "enabled"
"""


def test_a_turn_with_a_call_goes_there_and_back(home: Home) -> None:
    (home.workspace / "notes.md").write_text("x")
    acting = (
        begin(),
        thought(0, "I must look.", "signed"),
        call(1, "toolu_1", "file_list", '{"path"', ': "."}'),
        end("tool_use"),
    )
    server = ChatServer(
        Answer(status=529, pieces=(b"overloaded",)),
        answered(*acting),
        answered(begin(), text(0, "There is notes.md."), end("end_turn")),
    )
    home.environ["MESSAGES_KEY"] = "the key of the test"
    with in_a_thread(serving(server)) as url:
        home.configure(provider="claude", tables=SECTION.format(url=url))
        assert (
            "answered with 1 models; m is one of them"
            in home.json("provider", "test", "claude")["message"]
        )
        told = home.json("agent", "-m", "what is here?")
    assert told["text"] == "There is notes.md."
    assert told["usage"]["cached_tokens"] == 24
    _, first, second = server.requests
    assert first["thinking"]["type"] == second["thinking"]["type"] == "enabled"
    assert second["messages"][: len(first["messages"]) - 1] == first["messages"][:-1]
    said, results = second["messages"][-2:]
    assert said["content"] == [
        {"type": "thinking", "thinking": "I must look.", "signature": "signed"},
        {"type": "tool_use", "id": "toolu_1", "name": "file_list", "input": {"path": "."}},
    ]
    (block,) = results["content"]
    assert (block["tool_use_id"], block["content"]) == ("toolu_1", "notes.md")
    (receipt,) = home.receipt_lines()
    assert (receipt["tool"], receipt["status"]) == ("file_list", "allowed")
    assert "the key of the test" not in home.log()


def test_a_wrong_key_is_told_without_it(home: Home) -> None:
    home.environ["MESSAGES_KEY"] = "the key of the test"
    refusing = Answer(status=401, pieces=(b"invalid x-api-key: the key of the test",))
    with in_a_thread(serving(ChatServer(refusing, models=refusing))) as url:
        home.configure(provider="claude", tables=SECTION.format(url=url))
        done = home.ctl("agent", "-m", "hello")
        checked = home.ctl("provider", "test", "claude")
    assert done.returncode != 0
    assert "HTTP 401: invalid x-api-key: [redacted]" in done.stdout + done.stderr
    told = done.stdout + done.stderr + checked.stdout + checked.stderr + home.log()
    assert "the key of the test" not in told
