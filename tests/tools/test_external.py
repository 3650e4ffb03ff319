"""External tools in the real sandbox: hostile arguments, limits, what they see, how they end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools import external
from clawd.tools.external import ExternalTool
from clawd.tools.external_manifest import ExternalSpec, Parameter
from tests.support.rows import each_row
from tests.support.time_limits import TimeLimit
from tests.tools.external_files import ECHOES_ARGV, Bench, program

pytestmark = pytest.mark.sandbox

ONE = {"value": {"type": "string"}}
SCRIPT = "#!/bin/sh\n"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def echo(bench: Bench, **fields: Any) -> ExternalTool:
    path = bench.base / "echo-argv"
    command = str(path) if path.exists() else program(path, ECHOES_ARGV)
    made = bench.tool(
        **{"command": command, "argv": ["--", "{value}", "end"], "parameters": ONE, **fields}
    )
    assert isinstance(made, ExternalTool)
    return made


def script(bench: Bench, text: str, **fields: Any) -> ExternalTool:
    made = bench.tool(command=program(bench.base / "program", SCRIPT + text), **fields)
    assert isinstance(made, ExternalTool)
    return made


@each_row(
    "hostile",
    [
        "; rm -rf /",
        "$(touch owned)",
        "`touch owned`",
        "a\nb\n\nc\r\n",
        "-rf",
        "--help",
        "--",
        "",
        " ",
        "*",
        "~",
        "$HOME",
        "{value}",
        "a b\tc",
        "'\"\\",
        "|| touch owned &",
        "\x1b[31m\x07",
        "‮é漢🙂",
        "x" * 4096,
    ],
    fresh=["bench"],
)
async def test_a_hostile_argument_arrives_as_one_element(bench: Bench, hostile: str) -> None:
    result = await bench.call(echo(bench), value=hostile)
    assert result.success, result.error
    assert json.loads(result.output) == ["--", hostile, "end"]
    assert list(bench.workspace.iterdir()) == []


@each_row(
    ("hostile", "reason"),
    [("a\0b", "NUL"), ("x" * 4097, "4097 bytes long, at most 4096"), ("é" * 2049, "4098 bytes")],
    fresh=["bench"],
)
async def test_what_no_program_can_be_given_is_blocked(
    bench: Bench, hostile: str, reason: str
) -> None:
    result = await bench.call(echo(bench), value=hostile)
    assert not result.success
    assert reason in result.error


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")))
@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_text_is_one_element_between_its_neighbours(value: str) -> None:
    spec = ExternalSpec(
        name="t",
        description="d",
        command=Path("/bin/true"),
        argv=("a", "{v}", "b"),
        parameters=(Parameter(name="v", type="string"),),
    )
    if len(value.encode()) <= 4096:
        assert spec.words({"v": value}) == ("/bin/true", "a", value, "b")


async def test_numbers_and_booleans_are_written_as_json_does(bench: Bench) -> None:
    parameters = {
        "i": {"type": "integer"},
        "n": {"type": "number"},
        "b": {"type": "boolean"},
        "d": {"type": "integer", "default": -3},
        "c": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
    }
    tool = echo(bench, argv=["{i}", "{n}", "{b}", "{d}", "{c}"], parameters=parameters)
    result = await bench.call(tool, i="7", n=2.5, b=True)
    assert json.loads(result.output) == ["7", "2.5", "true", "-3", "blue"]


async def test_nothing_of_clawds_home_or_of_the_environment_is_seen(bench: Bench) -> None:
    (bench.home / "key").write_text("private")
    bench.environ["SERVER_API_KEY"] = "a-long-secret-value"
    tool = script(bench, f"cat {bench.home}/key; env; ls /proc/1/environ; cat /etc/shadow")
    result = await bench.call(tool)
    assert "private" not in result.output
    assert "a-long-secret-value" not in result.output


async def test_only_named_variables_are_passed_and_secrets_are_taken_out(bench: Bench) -> None:
    bench.environ |= {"TZ": "Asia/Tokyo", "WEATHER_TOKEN": "a-long-secret-value", "OTHER": "no"}
    tool = script(
        bench,
        'echo "$TZ ${#WEATHER_TOKEN} $WEATHER_TOKEN [$OTHER] [$ABSENT]"',
        env_passthrough=["TZ", "WEATHER_TOKEN", "ABSENT"],
    )
    result = await bench.call(tool)
    assert result.output == "Asia/Tokyo 19 [WEATHER_TOKEN] [] []"
    assert bench.reported == []


async def test_half_a_secret_at_the_end_of_what_is_kept_is_taken_out(bench: Bench) -> None:
    bench.environ |= {"WEATHER_TOKEN": "a-long-secret-value"}
    tool = script(
        bench,
        'printf "%01012d$WEATHER_TOKEN and more" 0',
        env_passthrough=["WEATHER_TOKEN"],
        max_output_bytes=1024,
    )
    result = await bench.call(tool)
    assert result.metadata["truncated"]
    assert result.output.startswith("0" * 1012 + "[WEATHER_TOKEN]\n[cut: ")


async def test_it_has_no_network_unless_granted(bench: Bench) -> None:
    look = "ls /sys/class/net 2>/dev/null; cat /proc/net/route | wc -l; cat /proc/net/dev | wc -l"
    shut = script(bench, look)
    granted = bench.tool(command=str(bench.base / "program"), network=True)
    assert (shut.outward, granted.outward) == (False, True)
    assert (shut.reaches_hosts, granted.reaches_hosts, granted.hosts) == (False, True, ("*",))
    closed, opened = await bench.call(shut), await bench.call(granted)
    assert closed.output == opened.output, "no network of this machine, whatever is granted"
    assert "untrusted_source" not in closed.metadata
    assert opened.metadata["untrusted_source"] == "the external tool probe"


async def test_it_writes_in_the_workspace_and_nowhere_else(bench: Bench) -> None:
    tool = script(bench, f"pwd; echo new > made; echo x > {bench.base}/escaped")
    result = await bench.call(tool)
    assert result.output.splitlines()[0] == str(bench.workspace)
    assert (bench.workspace / "made").read_text() == "new\n"
    assert not (bench.base / "escaped").exists()


@pytest.mark.landlock
async def test_it_runs_in_the_landlock_sandbox_too(bench: Bench) -> None:
    bench.sandbox = Sandbox(SandboxSettings(home=bench.home, levels=("landlock",)))
    (bench.home / "key").write_text("private")
    result = await bench.call(echo(bench), value="$(touch owned)")
    assert json.loads(result.output) == ["--", "$(touch owned)", "end"]
    assert result.metadata["sandbox"] == "landlock"
    shut = await bench.call(script(bench, f"cat {bench.home}/key; pwd", stderr="discard"))
    assert shut.output == str(bench.workspace)


async def test_another_folder_to_work_in_is_shown_read_only(bench: Bench) -> None:
    data = bench.base / "data"
    data.mkdir()
    (data / "a").write_text("hello")
    tool = script(bench, "pwd; cat a; echo x > b", cwd=str(data))
    result = await bench.call(tool)
    assert result.output.splitlines()[:1] == [str(data)]
    assert "hello" in result.output
    assert not (data / "b").exists()
    assert data in tool.touches({}, bench.context()).reads


async def test_a_program_behind_a_link_is_found(bench: Bench) -> None:
    real = bench.base / "real"
    real.mkdir()
    program(real / "prog", SCRIPT + "echo here")
    (bench.base / "link").symlink_to(real / "prog")
    assert (await bench.call(bench.tool(command=str(bench.base / "link")))).output == "here"


async def test_standard_error_is_merged_or_thrown_away(bench: Bench) -> None:
    text = "echo out; echo err >&2"
    assert (await bench.call(script(bench, text))).output == "out\nerr"
    assert (await bench.call(script(bench, text, stderr="merge"))).output == "out\nerr"
    bench.reported.clear()
    assert (await bench.call(script(bench, text, stderr="discard"))).output == "out"
    assert "".join(bench.reported) == "out\n"


async def test_another_exit_code_is_an_error_or_not(bench: Bench) -> None:
    strict = await bench.call(script(bench, "echo some; exit 3"))
    assert (strict.success, strict.output) == (False, "some")
    assert strict.error == "The tool exited with code 3"
    lenient = await bench.call(
        script(bench, "echo some; exit 3", treat_nonzero_exit_as_error=False)
    )
    assert (lenient.success, lenient.output) == (True, "some\n[exit code 3]")
    assert lenient.metadata["exit_code"] == 3


async def test_output_over_the_cap_is_cut_and_said_to_be(bench: Bench) -> None:
    text = "head -c 2000 /dev/zero | tr '\\0' x"
    whole = await bench.call(script(bench, text, max_output_bytes=2000))
    assert whole.output == "x" * 2000
    cut = await bench.call(script(bench, text, max_output_bytes=1024))
    assert cut.output == "x" * 1024 + "\n[cut: 976 of 2000 bytes left out]"


async def test_at_the_time_limit_it_is_asked_to_end_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "GRACE_S", 60.0)
    bench.heard = TimeLimit(monkeypatch).is_over_at("begun")
    text = "trap 'echo asked; exit 0' TERM\necho begun\nwhile :; do sleep 0.05; done"
    result = await bench.call(script(bench, text, timeout_ms=271_250))
    lines = result.output.splitlines()
    assert (lines[0], lines[-1]) == ("begun", "asked")
    assert result.error == "The tool was ended after 271.25 s"
    assert result.metadata["timed_out"] is True


async def test_m2_the_limit_of_all_calls_ends_it_whatever_the_manifest_says(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.heard, bench.most_s = TimeLimit(monkeypatch).is_over_at("begun"), TimeLimit.seconds
    result = await bench.call(script(bench, "echo begun\nexec sleep 300", timeout_ms=300_000))
    assert result.error == "The tool was ended after 271.25 s"


async def test_what_ignores_being_asked_is_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.heard = TimeLimit(monkeypatch).is_over_at("begun")
    text = "trap '' TERM\necho begun\n(sleep 300) &\nwhile :; do sleep 0.05; done"
    async with asyncio.timeout(90):
        result = await bench.call(script(bench, text, timeout_ms=271_250))
    assert result.error == "The tool was ended after 271.25 s"
    assert result.output == "begun"
    assert result.metadata["exit_code"] == 137


async def test_cancelling_ends_it_at_once(bench: Bench) -> None:
    await bench.sandbox.probe()
    tool = script(bench, "trap '' TERM\ntouch begun\nsleep 300\ntouch ended")
    task = asyncio.create_task(bench.call(tool))
    async with asyncio.timeout(60):
        while not (bench.workspace / "begun").exists():
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (bench.workspace / "ended").exists()


async def test_a_program_that_is_gone_is_told(bench: Bench) -> None:
    tool = script(bench, "true")
    (bench.base / "program").unlink()
    with pytest.raises(Exception, match="cannot be had") as caught:
        await bench.call(tool)
    assert "Mend" in getattr(caught.value, "hint", "")


async def test_a_program_in_the_workspace_of_the_call_is_blocked(bench: Bench) -> None:
    path = program(bench.workspace / "mine", SCRIPT + "echo changed")
    result = await bench.call(bench.tool(command=path))
    assert "where the model could change it" in result.error


def test_every_call_is_of_medium_risk_and_text_that_is_run_of_high(bench: Bench) -> None:
    plain = echo(bench)
    assert plain.risk({"value": "x"}, bench.context()).risk == "medium"
    runs = bench.tool(command="/bin/sh", argv=["-c", "{value}"], parameters=ONE)
    assert runs.risk({"value": "date"}, bench.context()).risk == "high"
    assert (plain.source, plain.starts_process, plain.holds_until_cleared) == (
        "external",
        True,
        True,
    )


def test_the_first_line_is_what_every_request_says(bench: Bench) -> None:
    tool = bench.tool(description="One line.\nThe manual.")
    assert (tool.short, tool.description) == ("One line.", "One line.\nThe manual.")
    assert len(bench.tool(description="x" * 4096).short) == 120
