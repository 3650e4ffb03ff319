"""Past calls judged again under another policy, from real receipts; nothing is run."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from clawd.receipts.record import Receipt
from clawd.runtime.replay import PolicyChange, decided
from clawd.security.policy import Allow, Ask
from clawd.security.principal import Principal
from clawd.service.handlers.policy import judge_of
from clawd.wire.codec import Answer, EventFrame, unpack_event
from clawd.wire.conversations import OpenConversation, SetMode
from clawd.wire.daemon import SetEstop
from clawd.wire.events import ApprovalRequested
from clawd.wire.policy import CheckPolicy, ExplainPolicy, PolicyReplay, ReplayPolicy
from clawd.wire.tools import RunTool
from tests.channels.rpc.rig import request
from tests.receipts.samples import receipts
from tests.support.inprocess import OWNER, Inside, daemon_in
from tests.support.rows import each_row

SHIPPED = Path(__file__).parents[2] / "etc" / "policy-cases.toml"
WRITE = '{"path":"a.txt","content":"x"}'


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with daemon_in(tmp_path) as made:
        yield made


async def run(inside: Inside, tool: str, arguments: str = "{}", answer: str = "") -> None:
    """Make a call, with this answer to what it asks."""
    client = await inside.client(OWNER)
    call = RunTool(name=tool, arguments=arguments, interactive=bool(answer))
    client.send(request(1, call))
    while isinstance(frame := await client.read(), EventFrame):
        asked = unpack_event(frame.event)
        if isinstance(asked, ApprovalRequested):
            client.send(Answer(id=1, question=asked.approval_id, value=answer, digest=asked.digest))
    client.close()


async def replayed(inside: Inside, **fields: object) -> PolicyReplay:
    before = (inside.receipts(), sorted(inside.workspace.iterdir()))
    found = await inside.ask(ReplayPolicy(**fields), OWNER)  # type: ignore[arg-type]
    assert (inside.receipts(), sorted(inside.workspace.iterdir())) == before, "nothing is run"
    return found


def counted(found: PolicyReplay) -> dict[tuple[str, str], int]:
    return {(each.before, each.after): each.count for each in found.counts}


async def history(inside: Inside) -> None:
    """Leave a receipt of each kind."""
    await run(inside, "file_list")
    await run(inside, "file_write", WRITE, answer="once")
    await run(inside, "file_write", WRITE, answer="deny")
    await run(inside, "file_write", WRITE)
    await run(inside, "shell", '{"command":"terraform plan"}')
    await run(inside, "shell", '{"command":"rm -rf /"}')


async def test_under_the_same_policy_nothing_changes(inside: Inside) -> None:
    await history(inside)
    found = await replayed(inside)
    assert found.items == ()
    assert counted(found) == {("allow", "allow"): 1, ("ask", "ask"): 3, ("deny", "deny"): 2}
    assert found.skipped == ()


async def test_another_autonomy_changes_what_it_should(inside: Inside) -> None:
    await history(inside)
    full = await replayed(inside, autonomy="full")
    shell_allowed = inside.daemon.sandbox_level != "none"
    expected = {("allow", "allow"): 1, ("ask", "allow"): 3, ("deny", "deny"): 1}
    expected[("deny", "allow" if shell_allowed else "deny")] = 1 if shell_allowed else 2
    assert counted(full) == expected
    assert [line.seq for line in full.items] == ([5] if shell_allowed else []) + [4, 3, 2]
    newest = full.items[-1]
    assert (newest.tool, newest.arguments) == ("file_write", '{"content":"x","path":"a.txt"}')
    assert newest.reason == "full runs everything that is not blocked"
    readonly = await replayed(inside, autonomy="readonly")
    assert counted(readonly) == {("allow", "allow"): 1, ("ask", "deny"): 3, ("deny", "deny"): 2}


async def test_another_configuration_judges_with_its_own_words(inside: Inside) -> None:
    await run(inside, "shell", '{"command":"terraform plan"}')
    await run(inside, "file_list")
    workspace = inside.workspace
    config = f'''workspace_dir = "{workspace}"
        [security]
        allowed_commands = ["terraform"]
        forbidden_paths = ["{workspace}"]
    '''
    found = await replayed(inside, config=config)
    changes = {(line.tool, line.before, line.after) for line in found.items}
    # In the full sandbox the person was asked already.
    asks = {("shell", "deny", "ask")} if inside.daemon.sandbox_level == "landlock" else set()
    assert changes == asks | {("file_list", "allow", "deny")}
    refused = await inside.refused(ReplayPolicy(config="[security]\nautonomy = 1"), OWNER)
    assert (refused.code, "security.autonomy" in refused.message) == ("config_invalid", True)


async def test_limit_and_since_choose_the_newest(inside: Inside) -> None:
    for _ in range(3):
        await run(inside, "file_list")
    assert counted(await replayed(inside, limit=2)) == {("allow", "allow"): 2}
    assert counted(await replayed(inside, since="2999-01-01")) == {}
    assert counted(await replayed(inside, since="2000-01-01")) == {("allow", "allow"): 3}
    for limit in (0, 10_001):
        wrong = await inside.refused(ReplayPolicy(limit=limit), OWNER)
        assert wrong.code == "invalid_request"


async def test_what_cannot_be_replayed_is_counted_by_its_reason(inside: Inside) -> None:
    secret = "sk-" + "a1" * 20
    await run(inside, "nope")
    await run(inside, "file_read", '{"x":1}')
    await run(inside, "file_write", f'{{"path":"a","content":"{secret}"}}')
    await run(inside, "calculator", '{"expression":"1+1"}')
    await inside.ask(SetEstop(), OWNER)
    await run(inside, "time")
    ledger = inside.daemon.memory.ledger
    gone = inside.receipts()[3].args_hash
    await ledger._database.write(
        lambda c: c.execute("DELETE FROM contents WHERE hash = ?", (gone,))
    )
    found = await replayed(inside)
    assert found.counts == ()
    assert {each.reason.partition(" (")[0]: each.count for each in found.skipped} == {
        "its arguments are not kept": 1,
        "its arguments held secrets, which are not kept": 1,
        "the policy did not decide about it": 3,
    }


async def test_the_emergency_stop_does_not_matter_and_rules_do(inside: Inside) -> None:
    await run(inside, "file_write", WRITE, answer="always")
    await run(inside, "file_write", WRITE)
    await inside.ask(SetEstop(), OWNER)
    found = await replayed(inside)
    assert counted(found) == {("allow", "allow"): 1, ("ask", "allow"): 1}


async def test_untrusted_text_that_a_receipt_names_counts_again(inside: Inside) -> None:
    (receipt,) = receipts(1)
    post = '{"url":"http://example.org/","method":"POST"}'
    judge = judge_of(inside.daemon, PolicyChange(autonomy="full"))
    for reason, verdict in (
        ("untrusted text from web a is in this conversation", Ask),
        ("sends a POST", Allow),
    ):
        past = msgspec.structs.replace(receipt, tool="http", approval="user", reason=reason)
        assert isinstance(judge.explain_again(past, post)[1], verdict)


async def test_the_shipped_table_holds_under_the_shipped_policy(inside: Inside) -> None:
    cases = (await inside.ask(CheckPolicy(table=SHIPPED.read_text()), OWNER)).items
    assert len(cases) >= 300
    assert [case for case in cases if case.problem] == []
    assert inside.receipts() == []


async def test_the_configured_table_is_read(inside: Inside) -> None:
    missing = await inside.refused(CheckPolicy(configured=True), OWNER)
    assert (missing.code, "policy_cases" in missing.hint) == ("not_found", True)
    table = inside.daemon.loaded.config.security.policy_cases
    table.write_text('[[case]]\nname = "a"\ntool = "time"\nexpect = "deny"')
    (case,) = (await inside.ask(CheckPolicy(configured=True), OWNER)).items
    assert case.problem == "expected deny, the policy says allow"


async def test_a_call_is_explained_in_the_mode_of_a_conversation(inside: Inside) -> None:
    talk = await inside.ask(OpenConversation(), OWNER)
    await inside.ask(SetMode(conversation_id=talk.id, mode="readonly"), OWNER)
    asked = ExplainPolicy(tool="file_write", arguments=WRITE, conversation_id=talk.id)
    assert (await inside.ask(asked, OWNER)).verdict == "deny"
    await inside.ask(SetMode(conversation_id=talk.id, mode="edits"), OWNER)
    assert (await inside.ask(asked, OWNER)).verdict == "allow"
    both = msgspec.structs.replace(asked, autonomy="full")
    assert "name no autonomy" in (await inside.refused(both, OWNER)).message
    assert (await inside.refused(asked, Principal(uid=4_242, gid=1, pid=1))).code == "not_found"


async def test_a_call_is_explained_in_another_autonomy(inside: Inside) -> None:
    said = [
        (await inside.ask(ExplainPolicy(tool="file_write", arguments=WRITE, autonomy=word), OWNER))
        for word in ("readonly", "supervised", "full", None)
    ]
    assert [each.verdict for each in said] == ["deny", "ask", "allow", "ask"]


@each_row(
    ("changes", "decision"),
    [
        ({"approval": "auto"}, "allow"),
        ({"approval": "auto", "status": "failed", "reason": "no such file"}, "allow"),
        ({"approval": "rule"}, "allow"),
        ({"approval": "user"}, "ask"),
        ({"status": "denied", "reason": "denied by the user"}, "ask"),
        ({"status": "denied", "reason": "no answer within 120 s"}, "ask"),
        ({"status": "denied", "reason": "rm is a forbidden command"}, "deny"),
        ({"status": "denied", "reason": "emergency stop is set"}, None),
        ({"status": "denied", "reason": "cancelled"}, None),
        ({"status": "denied", "reason": "shell is not offered on this channel"}, None),
        ({"status": "failed", "reason": "unknown tool"}, None),
        ({"status": "failed", "reason": "interrupted"}, None),
    ],
)
def test_what_a_receipt_says_was_decided(changes: dict[str, str], decision: str | None) -> None:
    (receipt,) = receipts(1)
    plain = msgspec.structs.replace(receipt, approval="none", reason="", status="allowed")
    fields = msgspec.structs.asdict(plain) | changes
    assert decided(msgspec.convert(fields, Receipt)) == decision
