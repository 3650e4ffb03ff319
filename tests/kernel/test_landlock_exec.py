"""The program that puts Landlock in force and becomes another: what it grants, starts and says."""

import errno
import os
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from clawd.kernel import landlock
from clawd.kernel.landlock import FILE_RIGHTS, WRITE, Rule
from clawd.kernel.landlock_exec import NOT_RESTRICTED, start_words, starter
from tests.support.arm64 import Arm64, EndedError

pytestmark = pytest.mark.landlock

PATH = "/usr/local/bin:/usr/bin:/bin"


def started(program: bytes, *argv: str) -> tuple[int, str]:
    """Start a command by the program; return its exit code and output."""
    descriptor = os.memfd_create("program", 0)
    os.write(descriptor, program)
    done = subprocess.run(
        [f"/proc/self/fd/{descriptor}", *start_words(argv, PATH)],
        pass_fds=(descriptor, 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    os.close(descriptor)
    return done.returncode, done.stdout.decode()


def ran(*argv: str, rules: tuple[Rule, ...] = ()) -> tuple[int, str]:
    """Run a command that may write where the rules say; return its exit code and output."""
    program = starter(platform.machine(), rules, WRITE, landlock.abi(), name=argv[0])
    return started(program, *argv)


def test_only_what_is_granted_is_written_and_everything_is_read(tmp_path: Path) -> None:
    granted, other = tmp_path / "granted", tmp_path / "other"
    for folder in (granted, other):
        folder.mkdir()
        (folder / "file").write_text("before")
    script = """
        cat $1/file $2/file
        for d in $1 $2; do
            echo after > $d/file; : > $d/new; mkdir $d/folder; ln -s x $d/link
            mv $d/file $d/folder/file; rm $d/new $d/link; mv $d/folder/file $d/file; rmdir $d/folder
        done 2>/dev/null
        echo x > /dev/null && echo null
    """
    rules = ((str(granted), WRITE), ("/dev/null", WRITE), (str(tmp_path / "missing"), WRITE))
    code, said = ran("bash", "-c", script, "bash", str(granted), str(other), rules=rules)
    assert (code, said) == (0, "beforebeforenull\n")
    assert {path.name: path.read_text() for path in granted.iterdir()} == {"file": "after\n"}
    assert {path.name: path.read_text() for path in other.iterdir()} == {"file": "before"}


def test_programs_are_found_and_refused_as_execvp_does(tmp_path: Path) -> None:
    bare = tmp_path / "no-interpreter"
    bare.write_text('echo "$@"\n')
    bare.chmod(0o755)
    plain = tmp_path / "plain"
    plain.write_text("text")
    plain.chmod(0o644)
    rows: dict[tuple[str, ...], tuple[int, str]] = {
        ("echo", "a", "", "b c"): (0, "a  b c\n"),
        ("/usr/bin/printf", "%s", "x"): (0, "x"),
        (str(bare), "one", "two"): (0, "one two\n"),
        ("sh", "-c", "echo $0; exit 3", "zero"): (3, "zero\n"),
        ("no-such-program",): (127, "no-such-program: No such file or directory\n"),
        (str(plain / "x"),): (127, f"{plain}/x: No such file or directory\n"),
        (str(plain),): (
            126,
            f"{plain}: Permission denied, or no program of this machine\n",
        ),
    }
    assert {argv: ran(*argv) for argv in rows} == rows


def test_no_descriptor_but_the_first_three_gets_through() -> None:
    code, said = ran("bash", "-c", "exec 9</dev/null; echo /proc/self/fd/*")
    assert (code, said.split()[:3]) == (0, [f"/proc/self/fd/{number}" for number in range(3)])
    assert len(said.split()) == 5  # what was opened itself: 9, and the folder


def test_where_landlock_fails_nothing_is_run() -> None:
    program = starter(platform.machine(), (), WRITE, landlock.abi(), name="echo")
    at = program.index(struct.pack("<QQQQ", WRITE, 0, landlock.scopes(landlock.abi()), 24))
    unknown_right = struct.pack("<Q", 1 << 63)
    broken = program[:at] + unknown_right + program[at + len(unknown_right) :]
    assert started(program, "echo", "ran") == (0, "ran\n")
    assert started(broken, "echo", "ran") == (NOT_RESTRICTED, "Landlock cannot be put in force\n")


def test_the_program_is_there_for_the_machines_that_the_filter_is_there_for() -> None:
    sizes = {
        machine: len(starter(machine, (), WRITE, 7, name="x"))
        for machine in ("x86_64", "aarch64", "riscv64")
    }
    assert 700 < sizes["x86_64"] < 1000
    assert 700 < sizes["aarch64"] < 1000
    assert sizes["riscv64"] == 0


class Kernel:
    """Answers a program's system calls on aarch64 and keeps what it asked for.

    Args:
        there: paths that can be opened, each with its descriptor.
        answers: what execve says of a path; what is not named is started.
        failing: the number of a call that fails with EPERM.
        states: what is read of the first process, one after the other; the last stays.
    """

    CREATE, ADD, RESTRICT, OPEN, CLOSE, EXEC, WRITE, EXIT = 444, 445, 446, 56, 436, 221, 64, 94
    READ, SLEEP = 67, 101
    RULESET = 3

    def __init__(
        self,
        there: dict[str, int] | None = None,
        answers: dict[str, int] | None = None,
        *,
        failing: int = 0,
        states: tuple[str, ...] = (),
    ) -> None:
        self.there, self.answers, self.failing = there or {}, answers or {}, failing
        self.states = list(states)
        self.asked: list[tuple[object, ...]] = []

    def start(self, program: bytes, *argv: str) -> list[tuple[object, ...]]:
        words = ["starter", *start_words(argv, "/a:/b")]
        with pytest.raises(EndedError):
            Arm64(program, words, ["HOME=/h"], self.call).run()
        return self.asked

    def call(self, machine: Arm64, number: int, given: list[int]) -> int:
        answer = 0
        match number:
            case self.CREATE:
                self.asked.append(("create", machine.read(given[0], given[1]), given[2]))
                answer = self.RULESET
            case self.OPEN:
                folder = given[0] - (1 << 64)
                path = machine.text(given[1])
                self.asked.append(("open", folder, path, given[2]))
                answer = self.there.get(path, -errno.ENOENT)
            case self.ADD:
                rule = struct.unpack("<Qi", machine.read(given[2], 12))
                self.asked.append(("add", *given[:2], *rule, given[3]))
            case self.RESTRICT:
                self.asked.append(("restrict", *given[:2]))
            case self.CLOSE:
                self.asked.append(("close", *given[:3]))
            case self.READ:
                self.asked.append(("read", given[0], *given[2:4]))
                state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
                machine.fill(given[1], state.encode())
                answer = len(state)
            case self.SLEEP:
                self.asked.append(("sleep", *struct.unpack("<QQ", machine.read(given[0], 16))))
            case self.EXEC:
                path, argv = machine.text(given[0]), machine.texts(given[1])
                self.asked.append(("exec", path, argv, machine.texts(given[2])))
                if path not in self.answers:
                    raise EndedError
                answer = -self.answers[path]
            case self.WRITE:
                self.asked.append(("write", given[0], machine.read(given[1], given[2]).decode()))
            case self.EXIT:
                self.asked.append(("exit", given[0]))
                raise EndedError
            case _:
                raise AssertionError(f"system call {number}")
        return -errno.EPERM if number == self.failing else answer


def test_s1_the_program_for_aarch64_restricts_itself_before_it_runs_anything() -> None:
    rules = (("/granted", WRITE), ("/missing", WRITE), ("/dev/null", WRITE))
    program = starter("aarch64", rules, WRITE, 7, name="ls")
    asked = Kernel({"/granted": 4, "/dev/null": 5}, {"/a/ls": errno.ENOENT}).start(
        program, "ls", "-l"
    )
    flags, here = os.O_PATH | os.O_CLOEXEC, -100
    assert asked == [
        ("create", struct.pack("<QQQ", WRITE, 0, 0b11), 0),
        ("open", here, "/granted", flags),
        ("add", Kernel.RULESET, 1, WRITE, 4, 0),
        ("open", here, "/missing", flags),
        ("open", here, "/dev/null", flags),
        ("add", Kernel.RULESET, 1, WRITE & FILE_RIGHTS, 5, 0),
        ("restrict", Kernel.RULESET, 0),
        ("close", 3, 0xFFFF_FFFF, 0),
        ("exec", "/a/ls", ["ls", "-l"], ["HOME=/h"]),
        ("exec", "/b/ls", ["ls", "-l"], ["HOME=/h"]),
    ]


def test_s1_where_landlock_fails_on_aarch64_nothing_is_run() -> None:
    program = starter("aarch64", (("/granted", WRITE),), WRITE, 7, name="ls")
    steps = {Kernel.CREATE: "create", Kernel.ADD: "add", Kernel.RESTRICT: "restrict"}
    for number, last in (steps | {Kernel.CLOSE: "close"}).items():
        asked = Kernel({"/granted": 4}, failing=number).start(program, "ls")
        assert asked[-3][0] == last
        assert asked[-2:] == [
            ("write", 2, "Landlock cannot be put in force\n"),
            ("exit", NOT_RESTRICTED),
        ]
        assert "exec" not in {each[0] for each in asked}


def test_s1_on_aarch64_programs_are_found_and_refused_as_execvp_does() -> None:
    program = starter("aarch64", (), WRITE, 7, name="x")
    missing, denied = "x: No such file or directory\n", "x: Permission denied, or no program"
    denied += " of this machine\n"
    table: dict[tuple[int, int], list[tuple[object, ...]]] = {
        (errno.ENOENT, errno.ENOTDIR): [("write", 2, missing), ("exit", 127)],
        (errno.EACCES, errno.ENOENT): [("write", 2, denied), ("exit", 126)],
        (errno.ENOENT, errno.EACCES): [("write", 2, denied), ("exit", 126)],
        (errno.ENOEXEC, 0): [("exec", "/bin/sh", ["/bin/sh", "/a/x", "1"], ["HOME=/h"])],
    }
    for (first, second), expected in table.items():
        answers = {"/a/x": first, "/b/x": second}
        asked = Kernel(answers=answers).start(program, "x", "1")
        assert asked[-len(expected) :] == expected, (first, second)


FILTERED = b"comp:\t2\n"
FENCED = "Name:\tbwrap\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"
UNFENCED = FENCED.replace("Seccomp:\t2", "Seccomp:\t0")


def test_on_aarch64_nothing_begins_before_the_first_process_has_its_filter() -> None:
    program = starter("aarch64", (), WRITE, 0, name="x", waits=True)
    status = "/proc/1/status"
    # What an earlier look has left in the buffer is not read again.
    states = (UNFENCED, "", "x", FENCED.replace("\t2", ""), FENCED)
    asked = Kernel({status: 4}, states=states).start(program, "x")
    look, nap = ("read", 4, 1 << 16, 0), ("sleep", 0, 100_000)
    assert asked == [
        ("open", -100, status, os.O_CLOEXEC),
        *[look, nap] * 4,
        look,
        ("close", 3, 0xFFFF_FFFF, 0),
        ("exec", "/a/x", ["x"], ["HOME=/h"]),
    ]


@pytest.mark.parametrize("failing", [0, Kernel.OPEN, Kernel.READ])
def test_on_aarch64_nothing_begins_where_the_first_process_gets_no_filter(failing: int) -> None:
    program = starter("aarch64", (), WRITE, 0, name="x", waits=True)
    # The number of looks is in the code; so many are more than an emulator can take.
    many, few = bytes.fromhex("3900a052"), bytes.fromhex("b9008052")  # mov w25, 0x10000; 5
    assert program.count(many) == 1
    state = FENCED if failing else UNFENCED
    kernel = Kernel({"/proc/1/status": 4}, failing=failing, states=(state,))
    asked = kernel.start(program.replace(many, few), "x")
    assert [each[0] for each in asked].count("read") == (0 if failing == Kernel.OPEN else 5)
    assert asked[-2:] == [
        ("write", 2, "the sandbox's first process has no system call filter\n"),
        ("exit", NOT_RESTRICTED),
    ]
    assert "exec" not in {each[0] for each in asked}


def test_here_a_command_begins_when_what_is_awaited_is_there_and_not_before() -> None:
    program = starter(platform.machine(), (), WRITE, 0, name="echo", waits=True)
    many = {"x86_64": "bd00000100", "aarch64": "3900a052"}[platform.machine()]
    few = {"x86_64": "bd05000000", "aarch64": "b9008052"}[platform.machine()]
    assert program.count(bytes.fromhex(many)) == 1
    program = program.replace(bytes.fromhex(many), bytes.fromhex(few))
    # Whether this machine's first process has a filter is not ours to say; its number is known.
    there, missing = b"\nPid:\t1\n", b"\nPid:\t2\n"
    said = "the sandbox's first process has no system call filter\n"
    assert started(program.replace(FILTERED, there), "echo", "ran") == (0, "ran\n")
    assert started(program.replace(FILTERED, missing), "echo", "ran") == (NOT_RESTRICTED, said)
