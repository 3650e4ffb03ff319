"""The REPL's commands about the conversation it is in, and how a compression is told of."""

from clawctl.views import compressed_line
from clawd.wire.conversations import (
    CompressConversation,
    CompressionReport,
    ConversationLine,
    ForkConversation,
    RenameConversation,
)
from clawd.wire.events import ContextCompressed
from clawd.wire.turns import SendMessage
from tests.support.fake_daemon import FakeDaemon
from tests.support.rows import each_row
from tests.support.terminal import PROMPT, Spawn, code_of, echo

LINE = ConversationLine(
    id="conv-2", title="adapters", created_at="", updated_at="", messages=8, forked_from="conv-1"
)


def test_it_is_compressed_renamed_and_forked_from_within(daemon: FakeDaemon, spawn: Spawn) -> None:
    daemon.handlers["send_message"] = echo
    daemon.handlers["compress_conversation"] = lambda call: CompressionReport(
        conversation_id=call.params.conversation_id,
        messages_replaced=0 if call.params.undo else 50,
        messages_shown=32,
        undone=2 if call.params.undo else 0,
        tokens_before=900,
        tokens_after=300,
    )
    daemon.handlers["rename_conversation"] = LINE
    daemon.handlers["fork_conversation"] = LINE
    child = spawn("agent")
    child.expect(PROMPT)
    for line, told in (
        ("/compress", "there is no conversation yet"),
        ("hello", "<hello>"),
        ("/compress please", "/compress takes nothing, --undo or --undo-last"),
        (
            "/compress",
            "A summary stands for 50 messages; the model is shown 32, about 900 tokens before and "
            "300 after.",
        ),
        ("/compress --undo", "2 compressions taken back; the model is shown 32 messages."),
        ("/compress --undo-last", "2 compressions taken back"),
        ("/rename", "/rename takes the new title"),
        ("/title adapters", "This conversation is now called: adapters"),
        ("/fork x", "/fork takes the number"),
        ("/fork 7", "You go on in conv-2, a copy of 8 messages."),
        ("more", "<more>"),
    ):
        child.sendline(line)
        child.expect_exact(told)
        child.expect(PROMPT)
    child.sendline("/exit")
    assert code_of(child) == 0
    undone = [call.undo for call in daemon.calls_of(CompressConversation)]
    assert undone == ["", "all", "last"]
    assert {call.conversation_id for call in daemon.calls_of(CompressConversation)} == {"conv-1"}
    (renamed,) = daemon.calls_of(RenameConversation)
    assert (renamed.conversation_id, renamed.title) == ("conv-1", "adapters")
    (forked,) = daemon.calls_of(ForkConversation)
    assert (forked.conversation_id, forked.message_id) == ("conv-1", 7)
    assert [sent.conversation_id for sent in daemon.calls_of(SendMessage)] == ["", "conv-2"]


@each_row(
    ("replaced", "before", "line"),
    [
        (50, 900, "● 50 messages left out of the context: 900 → 300 tokens"),
        (50, 0, "● 50 messages left out of the context"),
        (0, 900, "● old results were shortened: 900 → 300 tokens"),
    ],
)
def test_a_compression_is_told_of_in_one_line(replaced: int, before: int, line: str) -> None:
    event = ContextCompressed(messages_replaced=replaced, tokens_before=before, tokens_after=300)
    assert compressed_line(event) == line
