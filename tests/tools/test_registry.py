"""Names, aliases and patterns of tools, and how they are offered."""

from typing import Any, ClassVar

import pytest

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.providers.base import ToolSpec
from clawd.tools.offer import descriptors, short_of, specs
from clawd.tools.registry import Registry
from tests.support.dispatching import Probe
from tests.support.rows import each_row


class Aliased(Probe):
    aliases: ClassVar[tuple[str, ...]] = ("python3", "py")


def named(*names: str) -> Registry:
    return Registry([Probe(name) for name in names])


def test_a_tool_is_found_by_name_and_by_alias() -> None:
    tool = Aliased("evaluate")
    registry = Registry([tool])
    assert registry.get("evaluate") is registry.get("python3") is registry.get(" py\n") is tool


def test_an_alias_is_no_second_tool() -> None:
    assert [tool.name for tool in Registry([Aliased("evaluate")]).all()] == ["evaluate"]


@each_row("name", ["", "file_reed", "PROBE", "probe; rm", "*", "x" * 10_000])
def test_an_unknown_name_is_told_which_there_are(name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        named("probe", "alpha").get(name)
    assert caught.value.message.endswith("the tools are: alpha, probe")
    assert len(caught.value.message) < 200


@each_row("name", ["", "9lives", "_x", "a b", "a.b", "é", "a\n", "x" * 65, "a/b", "-a"])
def test_what_is_no_tool_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="does not match"):
        named(name)


@each_row("name", ["a", "Z9_-", "x" * 64, "files__read"])
def test_a_tool_name_is_taken(name: str) -> None:
    assert named(name).get(name).name == name


def test_no_two_tools_share_a_name_or_an_alias() -> None:
    for pair in (
        [Probe("one"), Probe("one")],
        [Aliased("one"), Probe("py")],
        [Probe("py"), Aliased("one")],
        [Aliased("one"), Aliased("two")],
    ):
        with pytest.raises(InvalidRequestError, match="two tools are called"):
            Registry(pair)


def test_a_refused_tool_leaves_no_trace() -> None:
    registry = named("py")
    with pytest.raises(InvalidRequestError):
        registry.add(Aliased("one"))
    assert [tool.name for tool in registry.all()] == ["py"]
    registry.add(Probe("python3"))


def test_patterns_choose_by_name_in_order_of_name() -> None:
    registry = named("file_write", "file_read", "shell", "time")
    chosen = [tool.name for tool in registry.allowed(iter(("time", "file_*")))]
    assert chosen == ["file_read", "file_write", "time"]
    assert registry.allowed(()) == []
    assert registry.allowed(("FILE_*", "")) == []
    assert len(registry.allowed(("*", "shell"))) == 4


def test_an_alias_is_not_matched_by_a_pattern() -> None:
    assert Registry([Aliased("evaluate")]).allowed(("py*",)) == []


def test_a_short_description_falls_back_to_the_first_line() -> None:
    class Wordy(Probe):
        short: ClassVar[str] = ""
        description: ClassVar[str] = "\n  Does it.\nAnd more."

    class Endless(Probe):
        short: ClassVar[str] = ""
        description: ClassVar[str] = "x" * 500

    class Silent(Probe):
        short: ClassVar[str] = ""

    assert short_of(Probe()) == "Probes."
    assert short_of(Wordy()) == "Does it."
    assert short_of(Endless()) == "x" * 120
    assert short_of(Silent()) == ""


def test_tools_are_offered_with_their_short_text_and_schema() -> None:
    marks = {"text": {"description": "required"}, "number": {"description": "optional"}}
    properties = {name: Probe.parameters["properties"][name] | marks[name] for name in marks}
    parameters: dict[str, Any] = Probe.parameters | {"properties": properties}
    assert specs([Probe("a")]) == (
        ToolSpec(name="a", description="Probes.", parameters=parameters),
    )


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*", "-evaluate"], ["file_read", "file_write", "plan"]),
        (["-evaluate", "*"], ["file_read", "file_write", "plan"]),
        (["-file_*"], ["evaluate", "plan"]),
        (["file_*", "-file_write"], ["file_read"]),
        (["-*", "plan"], []),
        (["-no_such"], ["evaluate", "file_read", "file_write", "plan"]),
        ([], []),
    ],
)
def test_m1_a_pattern_with_a_dash_takes_tools_out(patterns: list[str], expected: list[str]) -> None:
    registry = named("evaluate", "file_read", "file_write", "plan")
    assert [tool.name for tool in registry.allowed(patterns)] == expected


def test_m3_parameters_say_whether_they_are_required_on_every_channel() -> None:
    class Marked(Probe):
        parameters: ClassVar[dict[str, Any]] = {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "A file."},
                "limit": {"type": "integer"},
                "mode": {"type": "string", "description": "Optional way."},
            },
            "required": ["path"],
        }

    tool = Marked("marked")
    (spec,) = specs([tool])
    told = {name: rule["description"] for name, rule in spec.parameters["properties"].items()}
    assert told == {"path": "A file. (required)", "limit": "optional", "mode": "Optional way."}
    (descriptor,) = descriptors([tool])
    assert descriptor.input_schema == spec.parameters
    assert "description" not in tool.parameters["properties"]["limit"]
