"""Near names over several servers, through the real dispatcher: none runs anything but itself."""

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from clawd.receipts.record import Receipt
from clawd.security.policy import PolicySettings
from clawd.wire.events import ToolFinished
from tests.support.dispatching import Bench, Probe, request

FULL = PolicySettings(autonomy="full")
# The tools of `crm-eu` are not there: that server is down.
SERVERS = {
    "crm-us": ("delete_record", "uninstall", "unlock_account", "get_record", "enable_alerts"),
    "billing": ("refund_invoice", "send_invoice", "unsubscribe", "deactivate", "read_file"),
    "infra": ("start_machine", "detach_disk", "unmount", "scale_down", "async_apply"),
    "files": ("write_file", "list_directory", "move_file", "search_files", "shell"),
    "x": ("time", "undo", "plan_add"),
}
DOWN = ("delete_record", "uninstall", "unlock_account", "get_record", "read_file", "write_file")
# What means the contrary, or something else, by a letter or two.
CONTRARY = (
    "crm-us__install", "crm-us__lock_account", "crm-us__disable_alerts", "crm-us__set_record",
    "billing__subscribe", "billing__activate", "billing__reactivate", "billing__spend_invoice",
    "infra__restart_machine", "infra__attach_disk", "infra__mount", "infra__amount",
    "infra__scale_up", "infra__sync_apply", "infra__stop_machine", "files__remove_file",
    "files__rewrite_file", "x__redo", "x__timer", "undo_", "sync_apply", "un_write_file",
    "file_unread", "unread_file", "xshell", "x_shell", "x.undo", "files.write_file",
    "files/read_file", "files:shell", "billing.read_file", "FILES.write_file", "web__fetch",
    "fs__write", "plan__add", "memory__search", "file__read", "crm-eu.read_file",
)  # fmt: skip
BUILTIN = {
    "file_read": "low", "file_write": "low", "file_list": "low", "shell": "low", "undo": "low",
    "time": "low", "grep": "low", "glob": "low", "knowledge_delete": "low",
}  # fmt: skip


def near_names() -> Iterator[str]:
    """Yield the table: other servers, lost and other prefixes, slips, other cases and orders."""
    yield from CONTRARY
    for tool in DOWN:
        yield f"crm-eu__{tool}"
        yield f"crm_eu__{tool}"
        yield f"crm-ue__{tool}"
    for alias, tools in SERVERS.items():
        for tool in tools:
            yield f"{alias}__{tool.upper()}"
            yield f"{alias}_{tool}"
            yield f"{alias}__{tool[:-1]}"
            yield f"{alias}__{tool}s"
            yield f"{alias[:-1]}__{tool}" if len(alias) > 1 else f"y__{tool}"
            yield f"{alias}__{tool[1]}{tool[0]}{tool[2:]}"
            yield f"{alias}__{'_'.join(reversed(tool.split('_')))}x"
            if alias != "x" and tool != "shell":
                yield tool


def shop() -> list[Probe]:
    tools = []
    for alias, names in SERVERS.items():
        for name in names:
            tool = Probe(f"{alias}__{name}")
            tool.source = f"mcp:{alias}"  # type: ignore[misc]
            tools.append(tool)
    return [*tools, *map(Probe, BUILTIN)]


async def test_s6_no_near_name_over_five_servers_runs_anything_but_itself(bench: Bench) -> None:
    tools = shop()
    dispatcher = bench.dispatcher(tools, policy=FULL)
    own = {tool.name for tool in tools}
    names = [name for name in dict.fromkeys(near_names()) if name not in own]
    assert len(names) >= 200
    wrong = []
    for number, name in enumerate(names):
        by_model = request(name, call_id=f"call-{number}")
        for call in (by_model, msgspec.structs.replace(by_model, by_model=False)):
            outcome = await dispatcher.call(call, bench.scope())
            ran = [tool.name for tool in tools if tool.calls]
            if ran or outcome.kind != "unknown_tool":
                wrong.append((name, call.by_model, outcome.kind, ran))
            for tool in tools:
                tool.calls = 0
    assert wrong == []
    for tool in tools:  # each runs by its own name
        outcome = await dispatcher.call(request(tool.name), bench.scope())
        assert (outcome.kind, outcome.asked, tool.calls) == ("ok", "", 1)


async def test_s6_a_built_in_tool_that_was_guessed_has_both_names_on_its_trail(
    bench: Bench,
) -> None:
    class Filed(Probe):
        parameters: ClassVar[dict[str, Any]] = {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        }

    tools = [Filed("file_read"), Filed("file_list"), Probe("plan")]
    dispatcher = bench.dispatcher(tools, policy=FULL)
    rows = [
        ("file_reed", {"path": "a"}, "file_read", "file_reed"),
        ("cat", {"path": "a"}, "file_read", "cat"),
        ("fs_read", {"path": "a"}, "file_read", "fs_read"),
        ("fs", {"action": "cat", "path": "a"}, "file_read", "fs(action='cat')"),
        ("fs", {"action": "red", "path": "a"}, "", ""),
        ("functions.file_read", {"path": "a"}, "file_read", "functions.file_read"),
        ("fs", {"action": "read", "path": "a"}, "file_read", ""),
        ("file_read", {"path": "a"}, "file_read", ""),
    ]
    told = []
    for name, arguments, ran, asked in rows:
        call = request(name, msgspec.json.encode(arguments).decode())
        outcome = await dispatcher.call(call, bench.scope())
        assert (outcome.kind == "ok") is bool(ran), (name, outcome.text)
        told.append((ran, asked) if ran else None)
    receipts: list[Receipt] = bench.receipts()
    events = [event for event in bench.events if isinstance(event, ToolFinished)]
    for expected, receipt, event in zip(told, receipts, events, strict=True):
        if expected is not None:
            ran, asked = expected
            assert (receipt.tool, event.tool, event.asked) == (ran, ran, asked)
            assert (f"called as {asked!r}" in receipt.reason) is bool(asked), receipt.reason


async def test_s6_a_program_names_what_it_calls(bench: Bench) -> None:
    tool = Probe("file_write")
    dispatcher = bench.dispatcher([tool], policy=FULL)
    for name in ("write_file", "file_wrte", "functions.file_write", "FileWrite", "fs_write"):
        call = msgspec.structs.replace(request(name), by_model=False)
        outcome = await dispatcher.call(call, bench.scope())
        assert (outcome.kind, tool.calls) == ("unknown_tool", 0), name
        assert "file_write" in outcome.text  # the nearest is named
    for action, kind in (("create", "bad_arguments"), ("", "bad_arguments"), ("write", "ok")):
        arguments = msgspec.json.encode({"action": action, "text": "a"}).decode()
        call = msgspec.structs.replace(request("fs", arguments), by_model=False)
        assert (await dispatcher.call(call, bench.scope())).kind == kind, action


async def test_s6_arguments_of_a_servers_tool_are_never_guessed(bench: Bench) -> None:
    class Switch(Probe):
        parameters: ClassVar[dict[str, Any]] = {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["delete", "unlock", "async", "mount"]},
                "path": {"type": "string"},
                "to_account": {"type": "string"},
                "dry_run": {"type": "boolean"},
            },
            "required": ["action"],
        }

    tool = Switch("crm__act")
    tool.source = "mcp:crm"  # type: ignore[misc]
    dispatcher = bench.dispatcher([tool], policy=FULL)
    refused: list[dict[str, Any]] = [
        {"action": "remove"},
        {"action": "dele" + "t"},
        {"action": "lock"},
        {"action": "sync"},
        {"action": "amount"},
        {"operation": "delete"},
        {"path": "a"},
        {"action": "delete", "id": 5},
        {"action": "delete", "type": "soft"},
        {"action": "delete", "file": "a"},
        {"action": "delete", "no_account": "a"},
        {"action": "delete", "dry_runs": True},
        {"action": "delete", "recursive": False},
    ]
    taken: list[dict[str, Any]] = [
        {"action": "delete"},
        {"action": "Delete", "toAccount": "a", "dry-run": "true"},
        {"action": "delete", "nothing": None},
    ]
    wrong = []
    for arguments, is_taken in [(row, False) for row in refused] + [(row, True) for row in taken]:
        tool.calls = 0
        call = request(tool.name, msgspec.json.encode(arguments).decode())
        outcome = await dispatcher.call(call, bench.scope())
        if (outcome.kind == "ok", tool.calls) != (is_taken, int(is_taken)):
            wrong.append((arguments, outcome.kind, outcome.text))
    assert wrong == []
