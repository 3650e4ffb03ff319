"""The program that puts Landlock in force and becomes another: what it grants, starts and says."""

import os
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from clawd.kernel import landlock
from clawd.kernel.landlock import WRITE, Rule
from clawd.kernel.landlock_exec import NOT_RESTRICTED, start_words, starter

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
    at = program.index(struct.pack("<QQQQ", WRITE, 0, 0b11, 24))
    unknown_right = struct.pack("<Q", 1 << 63)
    broken = program[:at] + unknown_right + program[at + len(unknown_right) :]
    assert started(program, "echo", "ran") == (0, "ran\n")
    assert started(broken, "echo", "ran") == (NOT_RESTRICTED, "Landlock cannot be put in force\n")


def test_the_program_is_there_for_the_machines_that_the_filter_is_there_for() -> None:
    sizes = {
        machine: len(starter(machine, (), WRITE, 7, name="x"))
        for machine in ("x86_64", "aarch64", "riscv64")
    }
    assert 500 < sizes["x86_64"] < 700
    assert 500 < sizes["aarch64"] < 700
    assert sizes["riscv64"] == 0
