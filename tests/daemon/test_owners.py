"""Who may do and see what: every method against a table, with users that the kernel vouches for."""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from clawd.config.render import REDACTED
from clawd.errors import ForbiddenError
from clawd.providers.base import Provider
from clawd.security.approval_rules import rule_for
from clawd.security.file_content import FileChange, FileState
from clawd.security.peer import PeerPolicy, identify
from clawd.security.principal import Principal
from clawd.security.sandbox.process import ChildResult
from clawd.tools.base import ToolContext
from clawd.tools.changes import CallFacts
from clawd.wire.codec import Answer, Cancel, EventFrame, Failure, Result, ServerFrame, unpack_event
from clawd.wire.conversations import (
    CompressConversation,
    DeleteConversation,
    DeleteSessionFile,
    ExportConversation,
    ForkConversation,
    ListConversations,
    ListSessionFiles,
    OpenConversation,
    ReadSessionFile,
    RenameConversation,
    SetMode,
    ShowConversation,
    ShowPlan,
    ShowPrompt,
    WriteSessionFile,
)
from clawd.wire.daemon import (
    ClearCaches,
    ClearEstop,
    CompareEnvironment,
    CreateKey,
    EstopState,
    LinkPage,
    ListCaches,
    ListKeys,
    Ping,
    Reload,
    RevokeKey,
    SetEstop,
    ShowConfig,
    ShowMetrics,
    Shutdown,
    Status,
    TailLog,
)
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    QuestionAsked,
    ToolFinished,
)
from clawd.wire.mcp import (
    END,
    AcceptMcp,
    ConnectMcp,
    DiffMcp,
    DisconnectMcp,
    ListMcpServers,
    ListMcpTools,
    ServeMcp,
    ShowMcpTool,
)
from clawd.wire.memory import (
    AppendKnowledge,
    BackUpMemory,
    CheckMemory,
    ClearMemory,
    DeleteKnowledge,
    ListKeywords,
    ListKnowledge,
    LoadKnowledge,
    SaveKnowledge,
    SearchKnowledge,
    SearchMemory,
)
from clawd.wire.method import Method, method_name
from clawd.wire.methods import METHODS
from clawd.wire.models import (
    CheckProvider,
    ListLoadedModels,
    ListModels,
    ListProviders,
    LoadModel,
    ShowModel,
    UnloadModel,
)
from clawd.wire.policy import (
    AddRule,
    AllowHost,
    AnswerApproval,
    CheckPolicy,
    ExplainPolicy,
    ListApprovals,
    ListRules,
    ReplayPolicy,
    RevokeRule,
    ShowPolicy,
)
from clawd.wire.receipts import (
    AcceptReceipts,
    HeadOfReceipts,
    ListReceipts,
    LoadContents,
    ReadReceiptLog,
    ShowReceipt,
    VerifyReceipts,
)
from clawd.wire.schedules import (
    AddSchedule,
    ListScheduleRuns,
    ListSchedules,
    PauseSchedule,
    RemoveSchedule,
    RunSchedule,
)
from clawd.wire.skills import AddSkill, FillCommand, InspectSkill, ListSkills, TrustSkill
from clawd.wire.sops import (
    CancelSop,
    DryRunSop,
    EnableSop,
    InspectSop,
    ListSopRuns,
    ListSops,
    ResumeSop,
    RunSop,
    ShowSopRun,
)
from clawd.wire.tools import (
    ApprovePlugin,
    InspectPlugin,
    InstallPlugin,
    ListChanges,
    ListJobs,
    ListPlugins,
    ListTools,
    ReloadPlugins,
    RemovePlugin,
    RunTool,
    ShowChanges,
    ShowJob,
    StopJob,
)
from clawd.wire.turns import (
    CancelTurn,
    FollowConversation,
    ListTurns,
    PreviewPicture,
    SendMessage,
    ShowSampling,
    SteerTurn,
)
from tests.channels.rpc.rig import LIMIT_S, RawClient, request
from tests.runtime.models import PlannedModel, calls, says
from tests.security import fakes
from tests.sop.procedures import procedure
from tests.support.dispatching import Probe
from tests.support.inprocess import Inside, daemon_in
from tests.support.other_user import connected

ADA = Principal(uid=70_010, gid=70_010, pid=1)
BOB = Principal(uid=70_011, gid=70_011, pid=2)
ADMIN = Principal(uid=70_012, gid=70_012, pid=3, role="admin")
WORDS = "purple elephant"


class World:
    """A daemon in which Ada owns something of everything."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self.marks: list[str] = [WORDS]

    def mark(self, identity: str) -> str:
        """Remember what only Ada and admins may be shown."""
        self.marks.append(identity)
        return identity

    async def conversation(self) -> str:
        sent = SendMessage(text=f"{WORDS} {secrets.token_hex(4)}")
        return self.mark((await self.inside.ask(sent, ADA)).conversation_id)

    async def receipt(self) -> str:
        return self.mark((await self.inside.ask(RunTool(name="time"), ADA)).receipt_id)

    async def change(self) -> str:
        """Let a call of Ada's have made a file; return the call."""
        facts = CallFacts(
            owner=ADA.uid,
            conversation_id="",
            workspace=str(self.inside.daemon.calls.workspace("")),
            call_id=f"call-{len(self.marks)}",
            tool="file_write",
        )
        path = self.mark(f"{facts.call_id}.txt")
        made = FileChange(path=path, before=None, after=FileState.of(b"x"))
        await self.inside.daemon.changes.record(facts, [made])
        return facts.call_id

    async def rule(self) -> str:
        book = self.inside.daemon.rules
        action = fakes.action(principal=ADA)
        await book.add(rule := rule_for(action, now=book.now(), conversation=False))
        return self.mark(rule.id)

    async def approval(self) -> ApprovalRequested:
        arguments = '{"path":"a.txt","content":"x"}'
        client = await self.inside.client(ADA)
        client.send(request(1, RunTool(name="file_write", arguments=arguments, interactive=True)))
        asked: ApprovalRequested = await event_of(client, ApprovalRequested)
        self.mark(asked.approval_id)
        return asked

    async def answer(self) -> AnswerApproval:
        asked = await self.approval()
        return AnswerApproval(approval_id=asked.approval_id, digest=asked.digest, answer="deny")

    async def key(self) -> str:
        """Let Ada have a key; return its id."""
        return self.mark((await self.inside.ask(CreateKey(name=WORDS), ADA)).line.id)

    async def job(self) -> str:
        """Let Ada have a command that goes on; return its id."""
        jobs, conversation = self.inside.daemon.jobs, await self.conversation()
        context = ToolContext(
            conversation_id=conversation,
            call_id="c",
            principal=ADA,
            workspace=self.inside.workspace,
        )

        async def run(
            _report: Callable[[str], None], cleared: Callable[[], Awaitable[None]]
        ) -> ChildResult:
            await cleared()
            await asyncio.Event().wait()
            raise AssertionError

        begun = await jobs.run(Probe(), {"command": WORDS}, context, run=run, wait_s=0, limit_s=300)
        return str(begun.metadata["job"])

    async def sop_run(self) -> str:
        """Let Ada have a run of a procedure, which waits; return its id."""
        place = self.inside.daemon.loaded.layout.sops
        procedure(place, "wait", '[[steps]]\nid = "go"\nkind = "approval"\nprompt = "Go on?"\n')
        return self.mark((await self.inside.ask(RunSop(name="wait"), ADA)).run.id)

    async def note(self) -> None:
        """Let Ada know something, under a keyword that is hers alone."""
        await self.inside.ask(SaveKnowledge(keywords="elephant jumbo7", content=WORDS), ADA)

    async def session_file(self) -> str:
        """Let a conversation of Ada's have a file; return its id."""
        conversation = await self.conversation()
        write = WriteSessionFile(
            conversation_id=conversation, name="jumbo.txt", content=WORDS.encode()
        )
        await self.inside.ask(write, ADA)
        return conversation

    async def is_followed(self, params: FollowConversation, client: RawClient) -> bool:
        """Wait until the conversation is followed, or the request to do so has failed."""
        live = await self.inside.daemon.inbox.book.load(params.conversation_id, ADA)
        async with asyncio.timeout(LIMIT_S):
            while not live.broadcast.followers and not client.has_bytes:
                await asyncio.sleep(0)
        return bool(live.broadcast.followers)

    async def outcome(self, params: Method[Any], who: Principal) -> str:
        """Return `sees` or `ok` for a result with or without what is Ada's; else the code."""
        client = await self.inside.client(who)
        client.send(request(1, params))
        frames: list[ServerFrame] = []
        if isinstance(params, FollowConversation) and await self.is_followed(params, client):
            client.send(Cancel(id=1))
        if isinstance(params, ServeMcp):
            client.send(Answer(id=1, question=END, value=""))
        while isinstance(frame := await client.read(), EventFrame):
            frames.append(frame)
        client.close()
        if isinstance(frame, Failure):
            return frame.code
        assert isinstance(frame, Result)
        told = msgspec.msgpack.encode([*frames, frame])
        return "sees" if any(mark.encode() in told for mark in self.marks) else "ok"


async def event_of(client: RawClient, kind: type[Any]) -> Any:
    while True:
        frame = await client.read()
        assert isinstance(frame, EventFrame), frame
        if isinstance(event := unpack_event(frame.event), kind):
            return event


Make = Callable[[World], Awaitable[Method[Any]]]


def plain(params: Method[Any]) -> Make:
    async def make(_world: World) -> Method[Any]:
        return params

    return make


def about(thing: Callable[[World], Awaitable[str]], kind: type[Any], field: str) -> Make:
    async def make(world: World) -> Method[Any]:
        params: Method[Any] = kind(**{field: await thing(world)})
        return params

    return make


def about_all(params: Method[Any]) -> Make:
    async def make(world: World) -> Method[Any]:
        await world.conversation()
        await world.receipt()
        await world.rule()
        await world.approval()
        return params

    return make


def about_key(params: Method[Any]) -> Make:
    async def make(world: World) -> Method[Any]:
        await world.key()
        return params

    return make


def about_job(params: Method[Any]) -> Make:
    async def make(world: World) -> Method[Any]:
        await world.job()
        return params

    return make


def about_sop(params: Method[Any]) -> Make:
    async def make(world: World) -> Method[Any]:
        await world.sop_run()
        return params

    return make


async def approve_sop(world: World) -> Method[Any]:
    return ResumeSop(run=await world.sop_run(), answer="approve")


def about_notes(params: Method[Any]) -> Make:
    async def make(world: World) -> Method[Any]:
        world.mark("jumbo7")
        await world.note()
        return params

    return make


def about_file(kind: type[Any], **fields: Any) -> Make:
    async def make(world: World) -> Method[Any]:
        conversation = await world.session_file()
        world.mark("jumbo.txt")
        params: Method[Any] = kind(conversation_id=conversation, **fields)
        return params

    return make


async def say_more(world: World) -> Method[Any]:
    return SendMessage(text="more", conversation_id=await world.conversation())


async def say_now(world: World) -> Method[Any]:
    return SteerTurn(conversation_id=await world.conversation(), turn_id="t", text="now")


async def rename(world: World) -> Method[Any]:
    return RenameConversation(conversation_id=await world.conversation(), title="another")


async def set_mode(world: World) -> Method[Any]:
    return SetMode(conversation_id=await world.conversation(), mode="readonly")


async def long_talk(world: World) -> Method[Any]:
    conversation_id = await world.conversation()
    for number in range(3):
        more = SendMessage(text=f"{WORDS} {number}", conversation_id=conversation_id)
        await world.inside.ask(more, ADA)
    return CompressConversation(conversation_id=conversation_id)


# For each method: the request, and what Ada, another user and an admin get. `sees`: a result with
# what is Ada's in it; `ok`: a result without; else the code of the refusal.
EVERYBODY = ("ok", "ok", "ok")
ADMINS = ("forbidden", "forbidden", "ok")
OWN = ("sees", "ok", "sees")
OWN_ALONE = ("sees", "ok", "ok")
OWN_BY_ID = ("sees", "not_found", "sees")
TABLE: dict[str, tuple[Make, tuple[str, ...]]] = {
    "status": (about_all(Status()), EVERYBODY),
    "ping": (plain(Ping()), EVERYBODY),
    "compare_environment": (plain(CompareEnvironment(variables={})), EVERYBODY),
    "show_metrics": (about_all(ShowMetrics()), EVERYBODY),
    "list_turns": (about_all(ListTurns()), EVERYBODY),
    "tail_log": (plain(TailLog()), ADMINS),
    "reload": (plain(Reload()), ADMINS),
    "shutdown": (plain(Shutdown()), ADMINS),
    "list_conversations": (about_all(ListConversations()), OWN),
    "show_conversation": (
        about(World.conversation, ShowConversation, "conversation_id"),
        OWN_BY_ID,
    ),
    "open_conversation": (
        about(World.conversation, OpenConversation, "conversation_id"),
        OWN_BY_ID,
    ),
    "rename_conversation": (rename, OWN_BY_ID),
    "set_mode": (set_mode, OWN_BY_ID),
    "fork_conversation": (
        about(World.conversation, ForkConversation, "conversation_id"),
        OWN_BY_ID,
    ),
    "compress_conversation": (long_talk, OWN_BY_ID),
    "export_conversation": (
        about(World.conversation, ExportConversation, "conversation_id"),
        OWN_BY_ID,
    ),
    "delete_conversation": (
        about(World.conversation, DeleteConversation, "conversation_id"),
        OWN_BY_ID,
    ),
    "send_message": (say_more, OWN_BY_ID),
    "follow_conversation": (
        about(World.conversation, FollowConversation, "conversation_id"),
        ("cancelled", "not_found", "cancelled"),
    ),
    "serve_mcp": (plain(ServeMcp()), EVERYBODY),
    "steer_turn": (say_now, ("ok", "not_found", "ok")),
    "cancel_turn": (
        about(World.conversation, CancelTurn, "conversation_id"),
        ("ok", "not_found", "ok"),
    ),
    "list_approvals": (about_all(ListApprovals()), OWN),
    "answer_approval": (World.answer, ("sees", "forbidden", "sees")),
    "add_rule": (plain(AddRule(pattern="terraform *")), EVERYBODY),
    "list_rules": (about_all(ListRules()), OWN),
    "revoke_rule": (about(World.rule, RevokeRule, "rule_id"), ("sees", "forbidden", "sees")),
    "list_caches": (plain(ListCaches()), ADMINS),
    "clear_caches": (plain(ClearCaches()), ADMINS),
    "list_jobs": (about_job(ListJobs()), OWN),
    "show_job": (about(World.job, ShowJob, "job_id"), OWN_BY_ID),
    "stop_job": (about(World.job, StopJob, "job_id"), OWN_BY_ID),
    "list_tools": (plain(ListTools()), EVERYBODY),
    "run_tool": (about_all(RunTool(name="cwd")), EVERYBODY),
    "list_providers": (plain(ListProviders()), EVERYBODY),
    "check_provider": (plain(CheckProvider()), EVERYBODY),
    "list_models": (plain(ListModels()), EVERYBODY),
    "show_model": (plain(ShowModel(name="embedded")), EVERYBODY),
    # Whoever may send a message may make a model load; to take one away from others is for admins.
    "load_model": (plain(LoadModel(name="none")), ("model_not_found",) * 3),
    "unload_model": (
        plain(UnloadModel(name="none")),
        ("forbidden", "forbidden", "model_not_found"),
    ),
    "list_loaded_models": (plain(ListLoadedModels()), EVERYBODY),
    "search_memory": (about_all(SearchMemory(query="elephant")), OWN),
    "clear_memory": (about(World.conversation, ClearMemory, "conversation_id"), OWN_BY_ID),
    "back_up_memory": (
        plain(BackUpMemory(path="nowhere")),
        ("forbidden", "forbidden", "invalid_request"),
    ),
    "check_memory": (plain(CheckMemory()), ADMINS),
    # Knowledge is a person's own: an admin has his, and does not see that of others either.
    "save_knowledge": (about_notes(SaveKnowledge(keywords="a", content="b")), EVERYBODY),
    "append_knowledge": (about_notes(AppendKnowledge(keywords="a", content="b")), EVERYBODY),
    "search_knowledge": (about_notes(SearchKnowledge(keywords="elephant")), OWN_ALONE),
    "load_knowledge": (about_notes(LoadKnowledge(keywords="elephant")), OWN_ALONE),
    "list_knowledge": (about_notes(ListKnowledge()), OWN_ALONE),
    "list_keywords": (about_notes(ListKeywords()), OWN_ALONE),
    "delete_knowledge": (about_notes(DeleteKnowledge(keywords="elephant")), OWN_ALONE),
    "list_session_files": (about_file(ListSessionFiles), OWN_BY_ID),
    "read_session_file": (about_file(ReadSessionFile, name="jumbo.txt"), OWN_BY_ID),
    "write_session_file": (
        about_file(WriteSessionFile, name="jumbo.txt", content=b"x"),
        OWN_BY_ID,
    ),
    "delete_session_file": (about_file(DeleteSessionFile, name="jumbo.txt"), OWN_BY_ID),
    "create_key": (plain(CreateKey(scopes=("admin",))), ADMINS),
    "list_keys": (about_key(ListKeys()), OWN),
    "revoke_key": (about(World.key, RevokeKey, "key"), OWN_BY_ID),
    "link_page": (plain(LinkPage()), ("forbidden", "forbidden", "invalid_request")),
    "list_receipts": (about_all(ListReceipts()), OWN),
    "show_receipt": (about(World.receipt, ShowReceipt, "receipt_id"), OWN_BY_ID),
    "verify_receipts": (about_all(VerifyReceipts()), EVERYBODY),
    "head_of_receipts": (about_all(HeadOfReceipts()), EVERYBODY),
    "read_receipt_log": (about_all(ReadReceiptLog()), ("forbidden", "forbidden", "sees")),
    "load_contents": (plain(LoadContents(hashes=("0" * 64,))), ADMINS),
    "accept_receipts": (about_all(AcceptReceipts()), ADMINS),
    "list_changes": (about_all(ListChanges()), EVERYBODY),
    "show_changes": (
        about(World.change, ShowChanges, "receipt_id"),
        ("sees", "not_found", "not_found"),
    ),
    "preview_picture": (plain(PreviewPicture(data=b"none")), ("invalid_request",) * 3),
    "show_plan": (about(World.conversation, ShowPlan, "conversation_id"), OWN_BY_ID),
    "estop_state": (plain(EstopState()), EVERYBODY),
    "set_estop": (plain(SetEstop(reason="smoke")), EVERYBODY),
    "clear_estop": (plain(ClearEstop()), ADMINS),
    "show_config": (plain(ShowConfig()), ADMINS),
    "show_sampling": (plain(ShowSampling()), EVERYBODY),
    "show_prompt": (about(World.conversation, ShowPrompt, "conversation_id"), OWN_BY_ID),
    "allow_host": (plain(AllowHost(hosts=("get.example.org",))), EVERYBODY),
    "explain_policy": (plain(ExplainPolicy(tool="time")), EVERYBODY),
    "show_policy": (plain(ShowPolicy()), EVERYBODY),
    "check_policy": (plain(CheckPolicy()), EVERYBODY),
    "replay_policy": (about_all(ReplayPolicy()), EVERYBODY),
    "list_plugins": (plain(ListPlugins()), ADMINS),
    "inspect_plugin": (
        plain(InspectPlugin(path="/none")),
        ("forbidden", "forbidden", "invalid_request"),
    ),
    "install_plugin": (
        plain(InstallPlugin(path="/none", digest="")),
        ("forbidden", "forbidden", "invalid_request"),
    ),
    "approve_plugin": (
        plain(ApprovePlugin(name="none", digest="")),
        ("forbidden", "forbidden", "not_found"),
    ),
    "remove_plugin": (
        plain(RemovePlugin(name="none")),
        ("forbidden", "forbidden", "not_found"),
    ),
    "reload_plugins": (plain(ReloadPlugins()), ADMINS),
    # Everybody has their own; nobody but an admin sees another's.
    "list_schedules": (plain(ListSchedules()), EVERYBODY),
    "add_schedule": (
        plain(AddSchedule(name="none", prompt="x", when="never")),
        ("invalid_request",) * 3,
    ),
    "pause_schedule": (plain(PauseSchedule(name="none")), ("not_found",) * 3),
    "run_schedule": (plain(RunSchedule(name="none")), ("not_found",) * 3),
    "remove_schedule": (plain(RemoveSchedule(name="none")), ("not_found",) * 3),
    "list_schedule_runs": (plain(ListScheduleRuns(name="none")), ("not_found",) * 3),
    # The home's are the operator's; everybody may see what they and a workspace's are.
    "list_skills": (plain(ListSkills()), EVERYBODY),
    "inspect_skill": (plain(InspectSkill(name="none")), ("forbidden", "forbidden", "not_found")),
    "fill_command": (plain(FillCommand(name="none")), ("not_found",) * 3),
    "add_skill": (
        plain(AddSkill(path="/none", digest="")),
        ("forbidden", "forbidden", "invalid_request"),
    ),
    "trust_skill": (plain(TrustSkill(name="none")), ("forbidden", "forbidden", "not_found")),
    # Procedures are as skills are; their runs are the user's own.
    "list_sops": (plain(ListSops()), EVERYBODY),
    "inspect_sop": (plain(InspectSop(name="none")), ("forbidden", "forbidden", "not_found")),
    "enable_sop": (plain(EnableSop(name="none")), ("forbidden", "forbidden", "not_found")),
    "dry_run_sop": (about_sop(DryRunSop(name="wait")), EVERYBODY),
    "run_sop": (about_sop(RunSop(name="wait")), EVERYBODY),
    "list_sop_runs": (about_sop(ListSopRuns()), OWN),
    "show_sop_run": (about(World.sop_run, ShowSopRun, "run"), OWN_BY_ID),
    "resume_sop": (approve_sop, OWN_BY_ID),
    "cancel_sop": (about(World.sop_run, CancelSop, "run"), OWN_BY_ID),
    # The servers are the operator's: everybody may see what they offer, admins connect them.
    "list_mcp_servers": (plain(ListMcpServers()), EVERYBODY),
    "list_mcp_tools": (plain(ListMcpTools()), EVERYBODY),
    "show_mcp_tool": (plain(ShowMcpTool(alias="none", tool="none")), ("not_found",) * 3),
    "connect_mcp": (plain(ConnectMcp(alias="none")), ("forbidden", "forbidden", "not_found")),
    "diff_mcp": (plain(DiffMcp(alias="none")), ("not_found",) * 3),
    "accept_mcp": (
        plain(AcceptMcp(alias="none", offer="")),
        ("forbidden", "forbidden", "not_found"),
    ),
    "disconnect_mcp": (
        plain(DisconnectMcp(alias="none")),
        ("forbidden", "forbidden", "not_found"),
    ),
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with daemon_in(tmp_path) as inside:
        yield World(inside)


def test_every_method_has_its_row() -> None:
    assert set(TABLE) == set(METHODS)


# Hundreds of requests, most of which write to disk.
@pytest.mark.timeout(300)
async def test_every_method_gives_each_role_what_the_table_says(world: World) -> None:
    wrong: list[str] = []
    for name, (make, expected) in TABLE.items():
        for who, wanted in ((BOB, expected[1]), (ADA, expected[0]), (ADMIN, expected[2])):
            params = await make(world)
            assert method_name(type(params)) == name
            got = await world.outcome(params, who)
            if got != wanted:
                wrong.append(f"{name} for uid {who.uid}: {got}, expected {wanted}")
            world.inside.daemon.estop.clear()
    assert not wrong, wrong


async def test_a_stranger_gets_no_further_than_the_hello(world: World) -> None:
    def nobody(_peer: object) -> Principal:
        raise ForbiddenError("uid 70013 is in neither clawd-ctl nor clawd-admin")

    world.inside.identify = nobody
    client = RawClient(*await asyncio.open_unix_connection(world.inside.path))
    for number, (make, _) in enumerate(TABLE.values()):
        if make.__qualname__.startswith("plain"):
            client.send(request(number, await make(world)))
    (refusal,) = await client.rest()
    assert isinstance(refusal, Failure)
    assert (refusal.code, refusal.id) == ("forbidden", None)
    client.close()


async def test_status_counts_only_what_one_may_see(world: World) -> None:
    await about_all(Status())(world)
    seen = []
    for who in (ADA, BOB, ADMIN):
        status = await world.inside.ask(Status(), who)
        seen.append((status.conversations, status.approvals_pending, status.rules))
    assert seen == [(1, 1, 1), (0, 0, 0), (1, 1, 1)]


async def test_p5_only_an_admin_learns_whether_a_secret_was_guessed(world: World) -> None:
    token = "CLAWD_MCP__SERVERS__A__AUTH_TOKEN"
    asks = CompareEnvironment(variables={token: "guess", "CLAWD_SECURITY__AUTONOMY": "readonly"})
    ada, admin = [(await world.inside.ask(asks, who)).items for who in (ADA, ADMIN)]
    assert [(each.variable, each.effective) for each in ada] == [
        ("CLAWD_SECURITY__AUTONOMY", REDACTED)
    ]
    assert {each.variable for each in admin} == set(asks.variables)
    assert "guess" not in str(admin)


async def test_a_replay_shows_only_ones_own_calls(world: World) -> None:
    await world.inside.ask(RunTool(name="file_write", arguments='{"path":"a","content":""}'), ADA)
    found = [
        await world.inside.ask(ReplayPolicy(autonomy="full"), who) for who in (ADA, BOB, ADMIN)
    ]
    assert [len(each.items) for each in found] == [1, 0, 1]


async def test_a_replay_under_another_configuration_is_for_admins(world: World) -> None:
    assert await world.outcome(ReplayPolicy(config=""), ADA) == "forbidden"
    assert await world.outcome(ReplayPolicy(config=""), ADMIN) == "ok"


async def test_nobody_else_answers_a_question_of_a_tool(world: World) -> None:
    ada, bob = await world.inside.client(ADA), await world.inside.client(BOB)
    call = RunTool(name="ask_user", arguments='{"question":"Which?"}', interactive=True)
    ada.send(request(1, call))
    asked = await event_of(ada, QuestionAsked)
    bob.send(request(1, call))
    await event_of(bob, QuestionAsked)
    bob.send(Answer(id=1, question=asked.question_id, value="bob's"))
    assert await bob_is_heard(bob)
    ada.send(Answer(id=1, question=asked.question_id, value="ada's"))
    assert "ada's" in (await event_of(ada, ToolFinished)).output


async def test_nobody_else_answers_an_approval_by_an_answer_frame(world: World) -> None:
    asked, bob = await world.approval(), await world.inside.client(BOB)
    bob.send(request(1, RunTool(name="ask_user", arguments='{"question":"?"}', interactive=True)))
    await event_of(bob, QuestionAsked)
    bob.send(Answer(id=1, question=asked.approval_id, value="once", digest=asked.digest))
    assert await bob_is_heard(bob)
    (pending,) = (await world.inside.ask(ListApprovals(), ADA)).items
    assert pending.id == asked.approval_id


async def bob_is_heard(bob: RawClient) -> bool:
    """Whether what was sent before was taken: frames of a connection are taken in order."""
    bob.send(request(2, Ping()))
    return isinstance(await bob.read(), Result)


async def test_the_second_answer_is_told_who_gave_the_first(world: World) -> None:
    first = await world.answer()
    await world.inside.ask(first, ADMIN)
    late = await world.inside.refused(first, ADA)
    assert (late.code, late.message.endswith("it was answered by uid 70012: deny")) == (
        "not_found",
        True,
    )
    unknown = await world.inside.refused(first, BOB)
    assert unknown.message.endswith("is unknown")


async def test_every_client_of_the_owner_sees_a_question_and_who_answered_it(world: World) -> None:
    inside = world.inside
    conversation_id = await world.conversation()
    write = calls(("file_write", '{"path":"a.txt","content":"x"}'))
    model = PlannedModel(write, says("done"), name="mock")
    inside.daemon.state.providers = {"mock": cast("Provider", model)}
    first, second = await inside.client(ADA), await inside.client(ADA)
    follow = FollowConversation(conversation_id=conversation_id)
    second.send(request(1, follow))
    assert await world.is_followed(follow, second)
    first.send(
        request(1, SendMessage(text="go", conversation_id=conversation_id, interactive=True))
    )
    asked = [await event_of(client, ApprovalRequested) for client in (first, second)]
    assert asked[0] == asked[1]
    yes = Answer(id=1, question=asked[0].approval_id, value="once", digest=asked[0].digest)
    second.send(yes)
    told = [await event_of(client, ApprovalResolved) for client in (first, second)]
    assert [(each.answer, each.by) for each in told] == [("once", "uid 70010")] * 2
    first.send(Answer(id=1, question=yes.question, value="deny", digest=yes.digest))
    assert (await event_of(first, ToolFinished)).status == "allowed"


POLICY = PeerPolicy(mode="system", owner_uid=64_071, user_gid=70_001, admin_gid=70_002)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start processes of other users")
async def test_the_kernel_says_who_they_are() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with daemon_in(folder) as inside:
            inside.identify = lambda peer: identify(peer, POLICY)
            inside.path.parent.chmod(0o711)
            inside.path.chmod(0o666)
            conversation = await as_user(inside, 70_010, 70_001, SendMessage(text=WORDS))
            seen = []
            for uid, gid in ((70_010, 70_001), (70_011, 70_001), (70_012, 70_002)):
                answers = [
                    await as_user(inside, uid, gid, params)
                    for params in (Ping(), SearchMemory(query=WORDS), Reload(), ShowConfig())
                ]
                seen.append((uid, *answers))
            assert conversation == "sees"
            refused = ("forbidden",) * 2
            assert seen == [
                (70_010, "ok", "sees", *refused),
                (70_011, "ok", "ok", *refused),
                (70_012, "ok", "sees", "ok", "ok"),
            ]
            with connected(inside.path, uid=70_013, groups=(1,)) as (connection, _):
                client = RawClient(*await asyncio.open_unix_connection(sock=connection.dup()))
                refusal = await client.failure()
                client.close()
            assert refusal.code == "forbidden"
            assert "in neither clawd-ctl nor" in refusal.message


async def as_user(inside: Inside, uid: int, gid: int, params: Method[Any]) -> str:
    """Make a request over a connection that a process of another user made."""
    connecting = connected(inside.path, uid=uid, groups=(gid,))
    connection, _ = await asyncio.to_thread(connecting.__enter__)
    try:
        client = RawClient(*await asyncio.open_unix_connection(sock=connection.dup()))
        await client.hello()
        client.send(request(1, params))
        frames: list[ServerFrame] = []
        async with asyncio.timeout(LIMIT_S):
            while isinstance(frame := await client.read(), EventFrame):
                frames.append(frame)
        if isinstance(frame, Failure):
            return frame.code
        told = msgspec.msgpack.encode([*frames, frame])
        return "sees" if WORDS.encode() in told else "ok"
    finally:
        client.close()
        await asyncio.to_thread(connecting.__exit__, None, None, None)
