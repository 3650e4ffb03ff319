"""The methods: one stem for name, struct and handler, and a result type that can be decoded."""

import re
from typing import Any

import msgspec
import pytest

from clawd.service.handlers.table import HANDLERS
from clawd.wire import method
from clawd.wire.codec import pack, unpack
from clawd.wire.events import TurnFinished
from clawd.wire.method import Method, method_name, result_type
from clawd.wire.methods import METHODS, RESOURCES
from clawd.wire.policy import AnswerApproval
from tests.support.rows import each_row

KINDS = sorted(METHODS.items())
IDS = [name for name, _ in KINDS]


def test_every_method_struct_is_in_the_table() -> None:
    structs = {kind for kind in Method.__subclasses__() if kind.__module__.startswith("clawd.")}
    assert structs == set(METHODS.values())
    assert len(METHODS) == len(structs)


@each_row(("name", "kind"), KINDS, ids=IDS)
def test_name_and_struct_share_a_stem(name: str, kind: type[Method[Any]]) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
    assert "".join(word.capitalize() for word in name.split("_")) == kind.__name__
    assert method_name(kind) == name


@each_row(("name", "kind"), KINDS, ids=IDS)
def test_there_is_a_handler_of_that_name(name: str, kind: type[Method[Any]]) -> None:
    handler = HANDLERS[name]
    assert handler.__name__ == name
    assert handler.__annotations__["return"] is result_type(kind)


@each_row(("name", "kind"), KINDS, ids=IDS)
def test_the_result_is_a_report_or_the_end_of_a_turn(name: str, kind: type[Method[Any]]) -> None:
    result = result_type(kind)
    assert issubclass(result, msgspec.Struct)
    homes = {getattr(module, result.__name__, None) for module in (method, *RESOURCES)}
    assert result is TurnFinished or result in homes


@each_row(("name", "kind"), KINDS, ids=IDS)
def test_parameters_without_a_default_are_the_only_ones_wanted(
    name: str, kind: type[Method[Any]]
) -> None:
    fields = msgspec.structs.fields(kind)
    needed: dict[str, Any] = {field.encode_name: "x" for field in fields if field.required}
    if name == "allow_host":
        needed["hosts"] = ["x"]
    if name == "load_contents":
        needed["hashes"] = ["x"]
    if name == "write_session_file":
        needed["content"] = b"x"
    if name == "preview_picture":
        needed["data"] = b"x"
    if name == "answer_approval":
        needed["answer"] = "deny"
    if name == "compare_environment":
        needed["variables"] = {"x": "x"}
    if name == "set_mode":
        needed["mode"] = "edits"
    made = unpack(pack(needed), kind)
    assert unpack(pack(made), kind) == made


def test_only_these_methods_are_for_admins() -> None:
    assert {name for name, kind in KINDS if kind.admin} == {
        "reload",
        "shutdown",
        "tail_log",
        "clear_estop",
        "unload_model",
        "show_config",
        "read_receipt_log",
        "load_contents",
        "accept_receipts",
        "back_up_memory",
        "check_memory",
        "list_caches",
        "clear_caches",
        "list_plugins",
        "inspect_plugin",
        "install_plugin",
        "approve_plugin",
        "remove_plugin",
        "reload_plugins",
        "inspect_skill",
        "add_skill",
        "trust_skill",
        "inspect_sop",
        "enable_sop",
        "link_page",
        "accept_mcp",
        "connect_mcp",
        "disconnect_mcp",
    }


def test_only_these_methods_stream() -> None:
    assert {name for name, kind in KINDS if kind.streams} == {
        "send_message",
        "follow_conversation",
        "run_tool",
        "fill_command",
        "serve_mcp",
        "run_sop",
        "resume_sop",
        "save_knowledge",
        "append_knowledge",
        "delete_knowledge",
    }


def test_an_approval_word_that_is_none_is_refused() -> None:
    from clawd.errors import InvalidRequestError

    with pytest.raises(InvalidRequestError, match="answer"):
        unpack(pack({"approval_id": "a", "digest": "d", "answer": "yes"}), AnswerApproval)
