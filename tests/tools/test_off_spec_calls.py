"""Off-spec calls through the real dispatcher and the real tools, on a real workspace."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.security.policy import PolicySettings
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import Tool
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.naming import distance
from clawd.tools.offer import ToolLookup
from clawd.tools.outcome import CallOutcome
from tests.support.dispatching import Bench, bench_in, request
from tests.support.rows import each_row
from tests.tools.off_spec import FILES, REFUSED, ROWS, Outcome

FULL = PolicySettings(autonomy="full")
_EXAMPLE = re.compile(r"orrect (?:arguments|call) looks? like this: (?:(\w+) )?(\{.*\})$", re.M)


class Workshop:
    """Real tools over a workspace with a few files."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        bench.workspace = folder / "ws"
        for name, text in FILES.items():
            path = bench.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.dispatcher = bench.dispatcher(tools_in(folder), policy=FULL)

    async def call(self, name: str, arguments: str) -> CallOutcome:
        return await self.dispatcher.call(request(name, arguments), self.bench.scope())

    def files(self) -> dict[str, str]:
        root = self.bench.workspace
        found = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): path.read_text() for path in found}


def tools_in(folder: Path) -> list[Tool]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    sandbox = Sandbox(SandboxSettings(home=home))
    deps = BuiltinDeps(policy=FULL, home=home, sandbox=sandbox)
    return [*builtin_tools(deps), ToolLookup()]


@pytest.fixture
def workshop(bench: Bench, tmp_path: Path) -> Workshop:
    return Workshop(bench, tmp_path)


def test_the_table_is_large_and_has_no_row_twice() -> None:
    assert len(ROWS) >= 100
    assert len({(name, raw) for name, raw, _ in ROWS}) == len(ROWS)


@each_row(("name", "raw", "expected"), ROWS, fresh=["workshop"])
async def test_an_off_spec_call_does_what_was_meant_or_shows_how(
    workshop: Workshop, name: str, raw: str, expected: Outcome
) -> None:
    outcome = await workshop.call(name, raw)
    receipt = await workshop.bench.only_receipt()
    assert receipt.id == outcome.receipt_id
    if expected == REFUSED:
        assert outcome.status != "allowed", outcome.text
        assert workshop.files() == FILES
        await copy_the_example(workshop, name, outcome)
    elif expected.path:
        assert outcome.kind == "ok", outcome.text
        assert workshop.files() == FILES | {expected.path: expected.text}
    else:
        assert outcome.kind == "ok", outcome.text
        assert expected.says in outcome.text
        assert workshop.files() == FILES


async def copy_the_example(workshop: Workshop, name: str, outcome: CallOutcome) -> None:
    """Make the call that the answer shows; it must work."""
    found = _EXAMPLE.search(outcome.text)
    assert found, outcome.text
    again = await workshop.call(found[1] or name, found[2])
    assert again.kind == "ok", (found[0], again.text)


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """A call of file_write, written in another way or broken.

    Attributes:
        is_other: a sign was changed, so that another path or content may be meant.
        asks_more: an argument was added that would make it another act.
    """

    name: str
    text: str
    is_other: bool
    asks_more: bool


_CONTENT = 'it\'s "new"\n'


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    name = draw(st.sampled_from(["file_write", "write_file", "FileWrite", "fs", "fs_write"]))
    path = draw(st.sampled_from(["path", "file", "Path", "filePath", "patth"]))
    content = draw(st.sampled_from(["content", "text", "CONTENT", "conttent"]))
    call: dict[str, object] = {path: "notes.txt", content: _CONTENT}
    if name == "fs" and draw(st.booleans()):
        call["action"] = draw(st.sampled_from(["write", "Write", "create", "file_write"]))
    if draw(st.booleans()):
        call[draw(st.sampled_from(["explanation", "reason", "note"]))] = draw(st.text(max_size=5))
    if asks_more := draw(st.booleans()):
        odd = draw(st.sampled_from(["append", "mode", "dry_run", "backup", "if_missing"]))
        call[odd] = draw(st.sampled_from([True, "a", 1]))
    if draw(st.booleans()):
        call = {draw(st.sampled_from(["arguments", "input", "args"])): call}
    text = draw(st.sampled_from([json.dumps(call), repr(call), json.dumps(json.dumps(call))]))
    how = draw(st.sampled_from(["whole", "cut", "doubled", "changed"]))
    if how == "cut":
        text = text[: draw(st.integers(0, len(text)))]
    elif how == "doubled":
        text += draw(st.sampled_from([" done", "}", text, ', "append": true}']))
    elif how == "changed":
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + draw(st.sampled_from(['"', "'", ",", "}", "x", ""])) + text[at + 1 :]
    return Mutation(name=name, text=text, is_other=how == "changed", asks_more=asks_more)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(mutation=mutations())
async def test_a_mutation_of_a_call_has_the_effect_of_the_call_or_none(
    tmp_path_factory: pytest.TempPathFactory, mutation: Mutation
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    async with bench_in(folder) as bench:
        workshop = Workshop(bench, folder)
        outcome = await workshop.call(mutation.name, mutation.text)
        files = workshop.files()
    if outcome.kind != "ok":
        assert files == FILES
    elif mutation.is_other:
        (changed,) = [name for name in files if files[name] != FILES.get(name)]
        assert distance(changed, "notes.txt") <= 1
        assert distance(files[changed], _CONTENT) <= 2
    else:
        assert files == FILES | {"notes.txt": _CONTENT}, outcome.text
        assert not mutation.asks_more
