"""`clawctl top` on a terminal, in a pipe and as JSON, with a daemon that plays its part."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from clawd.errors import ClawError
from clawd.wire.daemon import EstopReport, MetricFamily, MetricSample, MetricsReport, StatusReport
from clawd.wire.mcp import McpServerLine, McpServerList
from clawd.wire.method import Done
from clawd.wire.models import LoadedModel, LoadedModelList
from clawd.wire.turns import TurnLine, TurnList
from tests.clawctl.conftest import Run
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.hostile import hostile_daemon
from tests.support.rows import each_row
from tests.support.screen import TerminalScreen, clawctl_screen

TURN = TurnLine(
    conversation_id="conv-one",
    turn_id="turn-1",
    owner=1000,
    provider="local",
    doing="tool",
    detail="shell",
    elapsed_s=75,
    doing_s=4,
    tokens=321,
    tokens_per_s=23.5,
    context_used=25,
    context_size=100,
)
MODEL = LoadedModel(
    name="tiny", path="/m", pid=1, state="ready", running=3, parallel=2, prompt_tokens=10,
    cached_tokens=9,
)  # fmt: skip
SERVER = McpServerLine(alias="files", link="waiting", transport="stdio", problem="it is away")


def counter(name: str, value: float) -> MetricFamily:
    sample = MetricSample(value=value)
    return MetricFamily(name=name, kind="counter", help="", samples=(sample,))


class Machine:
    """What the daemon says, which a test may change while it is looked at."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.turns = TurnList(items=(TURN, msgspec.structs.replace(TURN, turn_id="turn-2")))
        self.cancelled: list[str] = []
        self.stops: list[str] = []
        daemon.handlers |= {
            "list_turns": lambda _call: self.turns,
            "list_loaded_models": lambda _call: LoadedModelList(items=(MODEL,)),
            "list_mcp_servers": lambda _call: McpServerList(items=(SERVER,)),
            "show_metrics": lambda _call: MetricsReport(
                families=(
                    counter("clawd_prompt_tokens_total", 100),
                    counter("clawd_cached_tokens_total", 87),
                    counter("clawd_tool_denials_total", 3),
                )
            ),
            "cancel_turn": self._cancel,
            "set_estop": self._stop,
        }

    def _cancel(self, call: Call) -> Done:
        self.cancelled.append(call.params.conversation_id)
        return Done(message="cancelled 1 turn")

    def _stop(self, call: Call) -> EstopReport:
        self.stops.append(call.params.reason)
        return EstopReport(is_set=True)


@pytest.fixture
def machine(daemon: FakeDaemon) -> Machine:
    return Machine(daemon)


@pytest.fixture
def screen(machine: Machine, environ: dict[str, str]) -> Iterator[TerminalScreen]:
    with clawctl_screen(environ, "top", "--interval", "0.2", lines=24, columns=120) as made:
        made.wait_for("CONVERSATION")
        yield made


def test_it_shows_turns_models_and_servers(screen: TerminalScreen) -> None:
    for shown in (
        r"conv-one.* runs shell +4 s +1 min 15 s +321 +23\.5 +25%",
        r"tiny +ready +2/2 +1 ",
        r"files +waiting .*it is away",
        r"cache 87%",
        r"denied 3",
    ):
        screen.wait_for(re.compile(shown))


def test_it_follows_what_happens(screen: TerminalScreen, machine: Machine) -> None:
    machine.turns = TurnList(items=(), others=2)
    screen.wait_for("2 turns of others run.")
    machine.turns = TurnList(items=(msgspec.structs.replace(TURN, doing="approval"),))
    screen.wait_for("asks for shell")


def test_leaving_gives_the_terminal_back(screen: TerminalScreen) -> None:
    screen.press("q")
    assert screen.exit_code() == 0
    assert "CONVERSATION" not in screen.text
    assert b"\x1b[?25h" in screen.raw.split(b"CONVERSATION")[-1]


def test_ctrl_c_leaves_as_interrupted(screen: TerminalScreen) -> None:
    screen.press("C-c")
    assert screen.exit_code() == 130


def test_a_turn_is_cancelled_after_a_yes_only(screen: TerminalScreen, machine: Machine) -> None:
    machine.turns = TurnList(
        items=(TURN, msgspec.structs.replace(TURN, turn_id="turn-2", conversation_id="conv-two"))
    )
    screen.wait_for("conv-two")
    screen.press("Down")
    screen.type("x")
    screen.wait_for("Cancel the chosen turn?")
    screen.type("n")
    screen.wait_gone("Cancel the chosen turn?")
    assert machine.cancelled == []
    screen.type("x")
    screen.wait_for("Cancel the chosen turn?")
    screen.type("y")
    screen.wait_for("cancelled 1 turn")
    assert machine.cancelled == ["conv-two"]


def test_a_yes_is_for_the_turn_that_was_chosen_when_it_was_asked(
    screen: TerminalScreen, machine: Machine
) -> None:
    screen.type("x")
    screen.wait_for("Cancel the chosen turn?")
    other = msgspec.structs.replace(TURN, turn_id="turn-9", conversation_id="conv-other")
    machine.turns = TurnList(items=(other,))
    screen.wait_for("conv-other")
    screen.type("y")
    screen.wait_for("nothing was cancelled")
    assert machine.cancelled == []


def test_the_emergency_stop_takes_a_yes(screen: TerminalScreen, machine: Machine) -> None:
    screen.type("s")
    screen.wait_for("Set the EMERGENCY STOP?")
    screen.type("y")
    screen.wait_for("EMERGENCY STOP is set")
    assert machine.stops == ["clawctl top"]


def test_no_line_is_wider_than_the_terminal(screen: TerminalScreen) -> None:
    def fits(seen: TerminalScreen) -> bool:
        rows = [line for line in seen.lines if line.startswith("conv-")]
        heads = [line for line in seen.lines if "CONVERSATION" in line]
        # A row that the terminal broke would begin a line of its own.
        return (len(rows), len(heads)) == (2, 1) and not seen.lines[3] and not seen.lines[7]

    def drawn_after(length: int) -> Callable[[TerminalScreen], bool]:
        return lambda seen: len(seen.raw) > length and fits(seen)

    for columns in (40, 60, 200):
        screen.resize(24, columns)
        screen.wait_for(drawn_after(len(screen.raw)))


def test_text_of_others_drives_no_terminal(daemon: FakeDaemon, environ: dict[str, str]) -> None:
    hostile_daemon(daemon, fails=False)
    # This screen's own: colours, cursor, its other screen, and erasing. Nothing of a title.
    ours = re.compile(rb"\x1b\[(\?(1049|25)[hl]|[0-9;]*[mHJKAG])")
    with clawctl_screen(environ, "top", "--interval", "0.2", lines=40, columns=200) as screen:
        screen.wait_for("MCP SERVER")
        # While it draws, what was read may end in the middle of a sequence.
        screen.press("q")
        assert screen.exit_code() == 0
        rest = ours.sub(b"", bytes(screen.raw)).decode()
        assert {c for c in rest if ord(c) < 32 or 127 <= ord(c) < 160} <= {"\r", "\n"}
        assert "\u202e" not in rest


def test_a_daemon_that_goes_away_is_waited_for(
    screen: TerminalScreen, daemon: FakeDaemon, home: Path
) -> None:
    daemon.close()
    screen.wait_for(lambda seen: "No answer, trying again" in seen.text and "conv-one" in seen.text)
    with FakeDaemon(home / "run" / "clawd.sock", home) as fresh:
        Machine(fresh)
        screen.wait_for("The daemon is back.")


def test_a_daemon_that_answers_with_an_error_is_asked_again(
    screen: TerminalScreen, daemon: FakeDaemon
) -> None:
    def failing(_call: Call) -> StatusReport:
        raise ClawError("memory cannot be read", code="storage")

    before = daemon.handlers["status"]
    daemon.handlers["status"] = failing
    screen.wait_for("No answer, trying again: memory cannot be read")
    daemon.handlers["status"] = before
    screen.wait_for("The daemon is back.")


def test_a_pipe_gets_one_look(clawctl: Run, machine: Machine) -> None:
    done = clawctl("top")
    assert done.returncode == 0
    assert "conv-one" in done.stdout
    assert "\x1b" not in done.stdout


def test_json_has_it_all(clawctl: Run, machine: Machine) -> None:
    done = clawctl("top", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["turns"]["items"][0]["conversation_id"] == "conv-one"
    assert found["counts"]["clawd_cached_tokens_total"] == 87
    assert found["status"]["pid"]


def test_an_older_daemon_that_lists_no_turns_is_shown_all_the_same(
    clawctl: Run, daemon: FakeDaemon, machine: Machine
) -> None:
    def unknown(_call: Call) -> TurnList:
        raise ClawError("no such method", code="unknown_method")

    daemon.handlers["list_turns"] = unknown
    done = clawctl("top", "--once")
    assert (done.returncode, "No turn runs." in done.stdout) == (0, True)


def test_without_a_daemon_it_says_what_to_do(clawctl: Run, daemon: FakeDaemon) -> None:
    daemon.close()
    done = clawctl("--no-start", "top")
    assert done.returncode == 6
    assert "hint" in done.stderr


@each_row("given", ["0", "-1", "61", "soon"])
def test_an_interval_that_makes_no_sense_is_refused(here: Run, given: str) -> None:
    done = here("top", "--interval", given)
    assert done.returncode == 2
    assert "--interval" in done.stderr
