"""Every rule and cap of a manifest: what it takes, and what it refuses with line and reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from clawd.tools.external_manifest import JsonFileError, ManifestRules, warnings_of
from tests.support.rows import each_row
from tests.tools.external_files import TRUE, entry, manifest, program, read

TEXT = {"type": "string"}


def params(count: int) -> dict[str, Any]:
    return {f"p{number}": TEXT for number in range(count)}


def refusal(text: str, rules: ManifestRules | None = None) -> JsonFileError:
    with pytest.raises(JsonFileError) as caught:
        read(text, rules)
    return caught.value


def test_a_tool_has_what_the_page_says_when_it_says_nothing() -> None:
    (spec,) = read(manifest(entry()))
    assert (spec.timeout_ms, spec.max_output_bytes) == (10_000, 65_536)
    assert (spec.cwd, spec.env_passthrough, spec.argv) == (None, (), ())
    assert (spec.discards_errors, spec.nonzero_is_error, spec.hosts) == (False, True, ())


ACCEPTED: list[dict[str, Any]] = [
    {"name": "a"},
    {"name": "Z" + "_-9" * 21},
    {"description": "d"},
    {"description": "d" * 4096},
    {"argv": []},
    {"argv": ["x"] * 256},
    {"argv": ["x" * 4096]},
    {"argv": ["é" * 2048]},
    {"argv": ["{}", "{ }", "{0}", '{"a": 1}', "$HOME", "; rm -rf /"]},
    {"argv": ["{p0}", "--", "{p0}"], "parameters": params(1)},
    {"parameters": {}},
    {"parameters": params(32)},
    {"parameters": {"n": {"type": "integer", "default": -1}}},
    {"parameters": {"n": {"type": "number", "enum": [1, 2.5], "default": 2.5}}},
    {"parameters": {"b": {"type": "boolean", "default": False, "required": False}}},
    {"parameters": {"s": {"type": "string", "enum": ["a"], "required": True}}},
    {"parameters": {"s": {"type": "string", "default": "x" * 4096}}},
    {"parameters": {"s": {"type": "integer", "enum": [2**53, -(2**53)]}}},
    {"timeout_ms": 100},
    {"timeout_ms": 300_000},
    {"max_output_bytes": 1024},
    {"max_output_bytes": 4 << 20},
    {"cwd": "$SANDBOX"},
    {"cwd": "/usr/share"},
    {"env_passthrough": [f"V{number}" for number in range(16)]},
    {"stderr": "merge"},
    {"stderr": "discard"},
    {"treat_nonzero_exit_as_error": False},
    {"network": True},
    {"hosts": ["a.test:443", "*.b.test:80", "127.0.0.1:8080"]},
    {"hosts": ["*"]},
    {"hosts": ["a.test:443"], "network": True},
]


@each_row("fields", ACCEPTED, ids=lambda fields: str(fields)[:60])
def test_a_sound_tool_is_taken(fields: dict[str, Any]) -> None:
    (spec,) = read(manifest(entry(**fields)))
    assert spec.name == fields.get("name", "probe")
    assert spec.hosts == tuple(fields.get("hosts", ("*",) if "network" in fields else ()))
    for name in ("timeout_ms", "max_output_bytes"):
        assert name not in fields or getattr(spec, name) == fields[name]
    assert spec.argv == tuple(fields.get("argv", ()))
    assert {each.name for each in spec.parameters} == set(fields.get("parameters", ()))


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"name": None}, "", "`name` is missing"),
    ({"name": ""}, "name", "1 to 64"),
    ({"name": "1a"}, "name", "letters"),
    ({"name": "a b"}, "name", "letters"),
    ({"name": "a" * 65}, "name", "1 to 64"),
    ({"name": 7}, "name", "a number"),
    ({"description": None}, "", "`description` is missing"),
    ({"description": ""}, "description", "1 to 4096"),
    ({"description": " \n"}, "description", "blank"),
    ({"description": "d" * 4097}, "description", "1 to 4096"),
    ({"command": None}, "", "`command` is missing"),
    ({"command": "true"}, "command", "absolute"),
    ({"command": "./true"}, "command", "absolute"),
    ({"command": "/usr/bin/no-such-program"}, "command", "cannot be had"),
    ({"command": "/usr/bin"}, "command", "no file that may be executed"),
    ({"command": "/usr/bin/tr\0ue"}, "command", "NUL"),
    ({"argv": "x"}, "argv", "a text, expected a list"),
    ({"argv": ["x"] * 257}, "argv", "at most 256"),
    ({"argv": ["x" * 4097]}, "argv", "4097 bytes"),
    ({"argv": ["é" * 2049]}, "argv", "4098 bytes"),
    ({"argv": ["a\0b"]}, "argv", "NUL"),
    ({"argv": [1]}, "argv", "expected text"),
    ({"argv": ["{p}"]}, "argv", "not there"),
    ({"argv": ["--x={p0}"], "parameters": params(1)}, "argv", "whole element; put {p0} alone"),
    ({"argv": ["{p0}{p0}"], "parameters": params(1)}, "argv", "whole element"),
    ({"argv": [" {p0}"], "parameters": params(1)}, "argv", "whole element"),
    ({"parameters": params(33)}, "parameters", "at most 32"),
    ({"parameters": [{"name": "x"}]}, "parameters", '{"path": {"type": "string"}}'),
    ({"parameters": {"a b": TEXT}}, "parameters", "no name of a parameter"),
    ({"parameters": {"a": {}}}, "parameters", "`type` is missing"),
    ({"parameters": {"a": {"type": "array"}}}, "parameters", "string, integer, number, boolean"),
    ({"parameters": {"a": {"type": ["string"]}}}, "parameters", "expected one of"),
    ({"parameters": {"a": "string"}}, "parameters", "expected an object"),
    ({"parameters": {"a": {"type": "string", "enum": []}}}, "parameters", "empty"),
    ({"parameters": {"a": {"type": "integer", "enum": ["x"]}}}, "parameters", "no integer"),
    ({"parameters": {"a": {"type": "integer", "enum": [True]}}}, "parameters", "no integer"),
    ({"parameters": {"a": {"type": "string", "default": 1}}}, "parameters", "no string"),
    ({"parameters": {"a": {"type": "boolean", "default": 1}}}, "parameters", "no boolean"),
    (
        {"parameters": {"a": {"type": "string", "enum": ["x"], "default": "y"}}},
        "parameters",
        "none of `enum`",
    ),
    ({"parameters": {"a": {"type": "string", "required": False}}}, "parameters", "needs a `def"),
    (
        {"parameters": {"a": {"type": "string", "required": True, "default": "x"}}},
        "parameters",
        "is not required",
    ),
    ({"parameters": {"a": {"type": "string", "defaults": "x"}}}, "parameters", "mean `default`"),
    ({"description": "a\ud800"}, "description", "surrogate"),
    ({"parameters": {"a": {"type": "string", "default": "x" * 4097}}}, "parameters", "be given"),
    ({"parameters": {"a": {"type": "string", "enum": ["x" * 4097]}}}, "parameters", "be given"),
    ({"parameters": {"a": {"type": "integer", "default": 2**53 + 1}}}, "parameters", "be given"),
    ({"parameters": {"a": {"type": "integer", "default": 1.5}}}, "parameters", "no integer"),
    ({"timeout_ms": 99}, "timeout_ms", "100 to 300000"),
    ({"timeout_ms": 300_001}, "timeout_ms", "100 to 300000"),
    ({"timeout_ms": 1000.5}, "timeout_ms", "whole number"),
    ({"timeout_ms": True}, "timeout_ms", "whole number"),
    ({"max_output_bytes": 1023}, "max_output_bytes", "1024 to 4194304"),
    ({"max_output_bytes": (4 << 20) + 1}, "max_output_bytes", "1024 to 4194304"),
    ({"cwd": "work"}, "cwd", "absolute path or $SANDBOX"),
    ({"cwd": "$HOME"}, "cwd", "absolute path or $SANDBOX"),
    ({"cwd": "/"}, "cwd", "all of this machine"),
    ({"cwd": "/usr/.."}, "cwd", "all of this machine"),
    ({"cwd": "/proc/self/root"}, "cwd", "all of this machine"),
    ({"env_passthrough": [f"V{n}" for n in range(17)]}, "env_passthrough", "at most 16"),
    ({"env_passthrough": ["A=B"]}, "env_passthrough", "no name"),
    ({"env_passthrough": ["CLAWD_SECURITY__AUTONOMY"]}, "env_passthrough", "clawd's own"),
    ({"env_passthrough": ["LD_PRELOAD"]}, "env_passthrough", "clawd's own"),
    ({"env_passthrough": ["CREDENTIALS_DIRECTORY"]}, "env_passthrough", "clawd's own"),
    ({"env_passthrough": ["SERVER_KEY_NAME"]}, "env_passthrough", "clawd's own"),
    ({"stderr": "ignore"}, "stderr", "merge, discard"),
    ({"treat_nonzero_exit_as_error": "no"}, "treat_nonzero_exit_as_error", "true or false"),
    ({"network": 1}, "network", "true or false"),
    ({"hosts": "a.test:443"}, "hosts", "expected a list"),
    ({"hosts": ["a.test"]}, "hosts", "expected host:port"),
    ({"hosts": [f"a{n}.test:1" for n in range(65)]}, "hosts", "at most 64"),
    ({"shell": True}, "shell", "`shell` is unknown"),
    ({"timeout": 5}, "timeout", "did you mean `timeout_ms`?"),
]  # fmt: skip


@each_row(("fields", "field", "reason"), REFUSED, ids=[str(case[0])[:60] for case in REFUSED])
def test_what_is_wrong_refuses_the_file(fields: dict[str, Any], field: str, reason: str) -> None:
    text = manifest(entry(name="first"), entry(**fields))
    error = refusal(text, ManifestRules(kept_variables=frozenset({"SERVER_KEY_NAME"})))
    assert reason in error.reason
    line = text.splitlines()[error.line - 1]
    assert error.line > 6
    if field in {"name", "description", "command", "timeout_ms", "cwd", "stderr", "shell"}:
        assert line.strip().startswith(f'"{field}":'), line


@each_row(
    ("text", "reason"),
    [
        ("[]", "expected an object"),
        ("{}", "`version` is missing"),
        ('{"version": 1}', "`tools` is missing"),
        ('{"version": 2, "tools": []}', "`version` is 2, expected 1"),
        ('{"version": "1", "tools": []}', "expected 1"),
        ('{"version": true, "tools": []}', "expected 1"),
        ('{"version": 1, "tools": {}}', "expected a list"),
        ('{"version": 1, "tools": [3]}', "expected an object"),
        ('{"version": 1, "tools": [], "extra": 1}', "`extra` is unknown"),
        ('{"version": 1, "tools": [], "version": 1}', "named twice"),
        ("version = 1", "no JSON"),
    ],
)
def test_a_file_of_another_form_is_refused(text: str, reason: str) -> None:
    assert reason in refusal(text).reason


def test_a_file_holds_128_tools_and_no_more() -> None:
    tools = [entry(name=f"t{number}") for number in range(129)]
    assert len(read(manifest(*tools[:128]))) == 128
    assert "at most 128" in refusal(manifest(*tools)).reason


def test_a_program_that_the_model_could_change_or_not_see_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "ws"
    hidden = tmp_path / "home"
    outside = tmp_path / "bin"
    for folder in (own, hidden, outside):
        folder.mkdir()
        program(folder / "p", "#!/bin/sh\n")
    (outside / "link").symlink_to(own / "p")
    rules = ManifestRules(workspace=own, hidden=(hidden,))
    assert read(manifest(entry(command=str(outside / "p"))), rules)
    for command, reason in (
        (own / "p", "the model could change it"),
        (hidden / "p", "no command may see it"),
        (outside / "link", "the model could change it"),
    ):
        assert reason in refusal(manifest(entry(command=str(command))), rules).reason
    assert read(manifest(entry(cwd=str(outside))), rules)
    link = outside / "home"
    link.symlink_to(hidden)
    for folder in (hidden, hidden / "x", tmp_path, link, link / "x"):
        assert "hidden" in refusal(manifest(entry(cwd=str(folder))), rules).reason


def test_the_folder_of_a_tool_is_where_its_link_led_when_it_was_read(tmp_path: Path) -> None:
    folder, link = tmp_path / "data", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    (spec,) = read(manifest(entry(cwd=str(link))))
    assert spec.cwd == folder


def test_a_program_that_may_not_be_executed_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    plain.chmod(0o644)
    assert "may be executed" in refusal(manifest(entry(command=str(plain)))).reason


def warned(**fields: Any) -> str:
    (spec,) = read(manifest(entry(**fields)))
    return "; ".join(warnings_of(spec))


@each_row(
    ("fields", "word"),
    [
        ({"command": "/bin/sh", "argv": ["-c", "date"]}, "program into a file"),
        ({"command": "/usr/bin/python3", "argv": ["-c", "print(1)"]}, "-c"),
        ({"command": "/usr/bin/env", "argv": ["bash", "-c", "date"]}, "-c"),
        ({"command": "/usr/bin/perl", "argv": ["-e", "1"]}, "-e"),
        ({"command": "/bin/sh", "argv": ["-c", "{p}"], "parameters": {"p": TEXT}}, "high risk"),
        (
            {"command": "/bin/sh", "argv": ["-c", "--", "{p}"], "parameters": {"p": TEXT}},
            "high risk",
        ),
        ({"argv": ["{p}"], "parameters": {"p": TEXT}}, "put `--` before `{p}`"),
        ({"argv": ["{p}"], "parameters": {"p": {"type": "integer"}}}, "put `--`"),
        ({"argv": ["{p}", "--"], "parameters": {"p": TEXT}}, "put `--`"),
        ({"argv": ["{p}"], "parameters": {"p": TEXT | {"enum": ["-a", "b"]}}}, "put `--`"),
        ({"parameters": {"p": TEXT}}, "nowhere in argv"),
        ({"env_passthrough": ["WEATHER_API_KEY"]}, "looks like a secret"),
    ],
)
def test_what_is_doubtful_is_said(fields: dict[str, Any], word: str) -> None:
    assert word in warned(**fields)


@each_row(
    "fields",
    [
        {"command": "/usr/bin/wc", "argv": ["-c", "--", "{p}"], "parameters": {"p": TEXT}},
        {"argv": ["--file", "{p}"], "parameters": {"p": TEXT}},
        {"argv": ["{p}"], "parameters": {"p": {"type": "boolean"}}},
        {"argv": ["{p}"], "parameters": {"p": TEXT | {"enum": ["a", "b"]}}},
        {"env_passthrough": ["TZ", "MONKEYS", "LANG"]},
    ],
)
def test_what_is_not_doubtful_is_not(fields: dict[str, Any]) -> None:
    assert warned(**fields) == ""


def test_the_schema_is_that_of_the_parameters() -> None:
    (spec,) = read(
        manifest(
            entry(
                parameters={
                    "path": {"type": "string", "description": "The file."},
                    "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                }
            )
        )
    )
    assert spec.schema() == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file."},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    assert spec.command == Path(TRUE)


@each_row("name", ["text", "archive"])
def test_the_shipped_examples_are_sound(name: str) -> None:
    file = Path(__file__).parents[2] / "etc/external-tools" / f"CLAWD-{name}.tools"
    specs = read(file.read_text())
    assert len(specs) == 2
    assert [warning for spec in specs for warning in warnings_of(spec)] == []
    assert json.loads(file.read_text())["version"] == 1
