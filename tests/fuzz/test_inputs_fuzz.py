"""Files and texts that people or models wrote: they are taken, or refused with a clear error."""

import contextlib
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clawd.config.engine import split_adapter
from clawd.config.load import load
from clawd.errors import ClawError, ConfigError, InvalidRequestError, StorageError
from clawd.providers.presets import check_preset
from clawd.providers.scripted import load_script
from clawd.runtime.replay import parse_cases, run_cases
from clawd.security.approval_rules import JsonRuleStore, covers, rule_for
from clawd.security.policy import PolicySettings
from clawd.security.risk import Assessment
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.taint import PathPatterns
from clawd.tools.arguments import decode_arguments
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from tests.security import fakes

EXAMPLES = int(os.environ.get("CLAWD_FUZZ_EXAMPLES", "100"))
ROOT = Path(__file__).parents[2]
CONFIG = (ROOT / "etc/config.toml").read_text()
CASES = (ROOT / "etc/policy-cases.toml").read_text()
SCRIPT = (
    '{"replies": [{"when": "a", "tool_calls": [{"name": "x", "arguments": {}}]}, {"text": "b"}]}'
)
SCHEMAS = {
    tool.name: tool.parameters
    for tool in builtin_tools(
        BuiltinDeps(policy=PolicySettings(), home=None, sandbox=Sandbox(SandboxSettings(home=None)))
    )
}

FRAGMENTS = st.sampled_from([
    "[security]\n", "autonomy = ", '"full"\n', "[[case]]\n", "= ", "{}", "[", "]", "\n", '"', "#",
    "'",
    "0x10", "1e999", "nan", "-inf", "true", "1979-05-27", '"""', "\\u0000", "\x00", "\ud800", "é",
    "~",
    "$HOME", "${X", "[a.b.c]\n", "[[security]]\n", "null", "{", "}", ":", ",", "\\", "-1",
    "1" * 400,
    "[" * 500, "[providers.models.x]\nkind = \"local\"\n", "allowed_domains = [1]\n", "\r",
    "\ufeff",
])  # fmt: skip


def mutated(base: str) -> st.SearchStrategy[str]:
    """Return the text with some of it cut out, doubled, or exchanged for fragments."""

    @st.composite
    def build(draw: st.DrawFn) -> str:
        text = base
        for _ in range(draw(st.integers(0, 5))):
            at = draw(st.integers(0, len(text)))
            length = draw(st.integers(0, 40))
            filler = draw(FRAGMENTS | st.just(text[at : at + length]) | st.text(max_size=5))
            cut = draw(st.booleans())
            text = text[:at] + filler + text[at + (length if cut else 0) :]
        return text

    return build()


QUICK = settings(
    deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck)
)  # fmt: skip


@QUICK
@given(mutated(CONFIG) | st.lists(FRAGMENTS, max_size=12).map("".join))
def test_a_config_loads_or_says_what_is_wrong(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "fuzzed.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    path.chmod(0o600)
    try:
        loaded = load(path, {"HOME": str(folder), "CLAWD_HOME": str(folder / "home")})
    except ConfigError as error:
        assert error.problems
        assert all("\n\n" not in problem for problem in error.problems)
    else:
        assert loaded.config.security.autonomy in {"readonly", "supervised", "full"}


@QUICK
@given(mutated(CASES) | st.lists(FRAGMENTS, max_size=12).map("".join))
def test_a_table_of_cases_is_judged_or_refused(text: str) -> None:
    try:
        cases = parse_cases(text)
    except InvalidRequestError as error:
        assert error.message
        return
    low = Assessment(risk="low")
    assert len(run_cases(cases, PolicySettings(), lambda _case: low)) == len(cases)


_RULE = rule_for(fakes.action(), now=fakes.Clock()(), conversation=False)
RULES = msgspec.json.encode([_RULE]).decode()


@example('[{"id":"\ud800"}]')
@QUICK
@given(mutated(RULES) | st.lists(FRAGMENTS, max_size=12).map("".join))
def test_a_file_of_rules_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "rules.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    path.chmod(0o600)
    with contextlib.suppress(StorageError):
        for rule in JsonRuleStore(path).load():
            assert rule.pattern
            covers(rule, fakes.action(), now=fakes.Clock()(), tainted_by=())


@QUICK
@given(mutated(SCRIPT))
def test_a_script_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "script.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigError):
        assert load_script(path).replies is not None


@QUICK
@given(st.text(max_size=40) | mutated("style.gguf:0.5"))
def test_small_texts_are_taken_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        name, scale = split_adapter(text)
        assert name.lower().endswith(".gguf")
        assert isinstance(scale, float)
    with contextlib.suppress(InvalidRequestError):
        check_preset(text)
    assert PathPatterns((text,)).match("/a/b") in {True, False}


# --- arguments of calls

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["1", "true", "[1]", '{"a":1}', "\0", "\ud800", "1e400", "NaN", " x "]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip
_NAMES = sorted({name for schema in SCHEMAS.values() for name in schema["properties"]})
KEYS = st.sampled_from([*_NAMES, "file", "cmd", "text", "uri", "Path", "", "x"])
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5).map(json.dumps)
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "array": (list,), "object": (dict,),
}  # fmt: skip


@example("shell", "[" * 100_000)
@example("shell", '{"command":' * 50_000)
@example("file_read", '{"path":"a","offset":1e999}')
@example("http", '{"url":"a","headers":"{\\"a\\":\\"b\\"}"}')
@settings(deadline=None, max_examples=EXAMPLES * 3)
@given(
    st.sampled_from(sorted(SCHEMAS)),
    OBJECTS | OBJECTS.map(json.dumps) | OBJECTS.flatmap(mutated) | st.text(max_size=30),
)
def test_arguments_fit_the_schema_or_are_refused(tool: str, raw: str) -> None:
    schema = SCHEMAS[tool]
    try:
        decoded = decode_arguments(raw, schema)
    except InvalidRequestError as error:
        assert error.message
        assert len(error.message) < 2000
        return
    assert set(schema.get("required", ())) <= set(decoded) <= set(schema["properties"])
    for name, value in decoded.items():
        assert _fits(value, schema["properties"][name]), (name, value)
    assert decode_arguments(json.dumps(decoded), schema) == decoded
    json.dumps(decoded, allow_nan=False).encode()


def _fits(value: Any, rule: dict[str, Any]) -> bool:
    expected = TYPES[rule["type"]] if isinstance(rule.get("type"), str) else (object,)
    if isinstance(value, bool) and bool not in expected and object not in expected:
        return False
    return isinstance(value, expected) and value in rule.get("enum", [value])


def test_the_files_that_are_mutated_are_good(tmp_path: Path) -> None:
    assert tomllib.loads(CONFIG)
    assert parse_cases(CASES)
    (tmp_path / "script.json").write_text(SCRIPT)
    assert load_script(tmp_path / "script.json").replies
    rules = tmp_path / "rules.json"
    rules.write_text(RULES)
    rules.chmod(0o600)
    assert len(JsonRuleStore(rules).load()) == 1
    with pytest.raises(ClawError):
        parse_cases("[[case]]")
