"""The system call filter: what it says of each call, by an interpreter and by a real kernel."""

import errno
import json
import os
import platform
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from clawd.engine.worker import lockdown
from clawd.kernel import landlock
from clawd.kernel.syscalls import NUMBERS
from clawd.security.sandbox import landlock as sandbox_landlock
from clawd.security.sandbox.plan import ChildCommand, HostFacts, bubblewrap_plan
from clawd.security.sandbox.process import run_plan
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.sandbox.seccomp import compute_filter, filter_program
from tests.support.rows import each_row

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE = {"x86_64": 56, "aarch64": 220}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_PERSONALITY = {"x86_64": 135, "aarch64": 92}
_PYTHON = "/usr/bin/python3"
_MANY_FILES = 800


def verdict(
    program: bytes, number: int, *, architecture: int, first: int = 0, rest: Sequence[int] = ()
) -> int:
    """Run a filter on a call as the kernel would: a machine with one register."""
    arguments = (first, *rest, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments)
    register, at = 0, 0
    while True:
        code, then, otherwise, value = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        match code:
            case 0x20:
                (register,) = struct.unpack_from("=I", data, value)
            case 0x54:
                register &= value
            case 0x06:
                return int(value)
            case 0x15:
                at += then if register == value else otherwise
            case 0x35:
                at += then if register >= value else otherwise
            case 0x45:
                at += then if register & value else otherwise
            case _:
                pytest.fail(f"unknown code {code:#x}")


@pytest.fixture(params=list(_ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def denied(number: int = errno.EPERM) -> int:
    return 0x00050000 | number


def test_calls_of_another_architecture_kill_the_process(machine: str) -> None:
    program = filter_program(machine)
    for other in (0x40000003, 0x40000028, 0):  # i386, arm
        assert verdict(program, 0, architecture=other) == _KILL


def test_sockets_are_for_the_internet_only(machine: str) -> None:
    program, architecture = filter_program(machine), _ARCHITECTURES[machine]
    found = {
        family: verdict(program, _SOCKET[machine], architecture=architecture, first=family)
        for family in range(46)
    }
    assert {family for family, said in found.items() if said == _ALLOW} == {2, 10, 16}
    assert set(found.values()) == {_ALLOW, denied()}


def test_only_linux_as_it_is_may_be_the_personality(machine: str) -> None:
    program, architecture = filter_program(machine), _ARCHITECTURES[machine]

    def personality(value: int) -> int:
        return verdict(program, _PERSONALITY[machine], architecture=architecture, first=value)

    assert {personality(value) for value in (0, 0xFFFFFFFF)} == {_ALLOW}
    for odd in (0x0008, 0x0040000, 0x0100000, 0x0200000, 0x0400000, 0x0800000, 0x4000000, 1):
        assert personality(odd) == denied()


def test_no_request_puts_characters_into_a_terminal(machine: str) -> None:
    program, architecture = filter_program(machine), _ARCHITECTURES[machine]

    def ioctl(request: int) -> int:
        return verdict(
            program, _IOCTL[machine], architecture=architecture, first=0, rest=(request,)
        )

    for request in (0x5412, 0x541C, 0x1_0000_5412):  # the kernel reads the low half only
        assert ioctl(request) == denied()
    for request in (0x5401, 0x5413, 0x541B):  # TCGETS, TIOCGWINSZ, FIONREAD
        assert ioctl(request) == _ALLOW


@each_row(
    ("machine_name", "numbers"),
    [
        ("x86_64", (103, 134, 136, 139, 153, 154, 156, 164, 170, 171, 174, 177, 178, 180, 212)),
        ("x86_64", (279, 300, 305, 443, 467)),
        ("aarch64", (18, 42, 58, 116, 161, 162, 170, 239, 262, 266, 443, 467)),
    ],
)
def test_what_is_obsolete_or_of_the_whole_machine_is_denied(
    machine_name: str, numbers: tuple[int, ...]
) -> None:
    program, architecture = filter_program(machine_name), _ARCHITECTURES[machine_name]
    for number in numbers:
        assert verdict(program, number, architecture=architecture) == denied(), number


# Calls as asm-generic/unistd.h numbers them, which aarch64 uses.
_GENERIC = {
    "acct": 89, "add_key": 217, "bind": 200, "bpf": 280, "capset": 91, "chroot": 51, "clone": 220,
    "execve": 221, "execveat": 281, "fanotify_init": 262, "fchmod": 52, "fchmodat": 53,
    "fchown": 55, "fchownat": 54, "finit_module": 273, "init_module": 105,
    "inotify_add_watch": 27, "ioctl": 29, "ioprio_set": 30, "kcmp": 272, "kexec_load": 104,
    "keyctl": 219, "kill": 129, "listen": 201, "mknodat": 33, "mount": 40, "move_pages": 239,
    "mq_open": 180, "msgget": 186, "name_to_handle_at": 264, "open_by_handle_at": 265,
    "perf_event_open": 241, "pidfd_open": 434, "pivot_root": 41, "prlimit64": 261,
    "process_vm_readv": 270, "process_vm_writev": 271, "ptrace": 117, "request_key": 218,
    "rt_sigqueueinfo": 138, "sched_setaffinity": 122, "seccomp": 277, "semget": 190, "setns": 268,
    "setpgid": 154, "setpriority": 140, "setsid": 157, "setxattr": 5, "shmget": 194,
    "socket": 198, "socketpair": 199, "tgkill": 131, "tkill": 130, "umount2": 39, "unshare": 97,
    "userfaultfd": 282, "utimensat": 88,
}  # fmt: skip
# What the table of names does not hold, as x86_64 and as aarch64 number it.
_OTHERS = {
    "openat": (257, 56), "mkdirat": (258, 34), "personality": (135, 92), "syslog": (103, 116),
    "reboot": (169, 142), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "swapon": (167, 224), "sethostname": (170, 161), "quotactl": (179, 60),
    "openat2": (437, 437), "quotactl_fd": (443, 443), "read": (0, 63), "write": (1, 64),
}  # fmt: skip
_LEGACY = {
    "fork", "vfork", "chmod", "chown", "lchown", "creat", "mknod", "open", "utime", "utimes",
    "futimesat",
}  # fmt: skip
_WORLD = 4711


def _filters(machine: str) -> dict[str, bytes]:
    """Return every filter of the house for a machine."""
    return {
        "sandbox": filter_program(machine),
        "landlock level": sandbox_landlock._filter(machine),
        "asking": sandbox_landlock._asking(machine),
        "computing": compute_filter(machine),
        "engine": lockdown.filter_program(machine, _WORLD, is_networked=False),
        "engine with servers": lockdown.filter_program(machine, _WORLD, is_networked=True),
    }


_ARGUMENTS = (
    (0,), (1, 0, 0), (2, 1), (10, 2), (16, 0, 0o4755), (0x10000, 5), (0x10000000, 0o4755),
    (_WORLD, 9), (7, 0x5412), (7, 0x40086602), (0x003D0F00, 0o755, 0o100, 0o4755),
    (3, 4, os.O_CREAT, 0o2755), (1, 2, 0o755, 0),
)  # fmt: skip


def test_s1_every_filter_judges_a_call_by_its_name_alike_on_aarch64() -> None:
    x86, arm = NUMBERS["x86_64"], NUMBERS["aarch64"]
    calls = {name: (number, arm[name]) for name, number in x86.items() if name in arm} | _OTHERS
    wrong, denials = [], dict.fromkeys(_filters("aarch64"), 0)
    ours, theirs = _filters("x86_64"), _filters("aarch64")
    for name, numbers in calls.items():
        for given in _ARGUMENTS:
            for about in ours:
                found = [
                    verdict(program, number, architecture=mark, first=given[0], rest=given[1:])
                    for program, number, mark in zip(
                        (ours[about], theirs[about]), numbers, _ARCHITECTURES.values(), strict=True
                    )
                ]
                denials[about] += found[1] != _ALLOW
                if found[0] != found[1]:
                    wrong.append((about, name, given, found))
    assert wrong == []
    assert min(denials.values()) >= 4 * len(_ARGUMENTS), denials


def test_s1_aarch64_has_a_number_for_every_call_that_it_knows_of_x86() -> None:
    assert set(NUMBERS["x86_64"]) - set(NUMBERS["aarch64"]) == _LEGACY
    assert set(NUMBERS["aarch64"]) <= set(NUMBERS["x86_64"])
    assert {name: NUMBERS["aarch64"][name] for name in _GENERIC} == _GENERIC


def test_s1_calls_by_numbers_of_another_machine_end_the_process_under_every_filter() -> None:
    for machine, mark in _ARCHITECTURES.items():
        for about, program in _filters(machine).items():
            for other in {*_ARCHITECTURES.values(), 0x40000003, 0x40000028, 0} - {mark}:
                assert verdict(program, 0, architecture=other) == _KILL, (about, machine)


def test_new_namespaces_are_denied_and_threads_are_not(machine: str) -> None:
    program, architecture = filter_program(machine), _ARCHITECTURES[machine]

    def clone(flags: int) -> int:
        return verdict(program, _CLONE[machine], architecture=architecture, first=flags)

    assert clone(0x003D0F00) == _ALLOW  # what pthread_create asks for
    assert clone(0x01200011) == _ALLOW  # what fork asks for
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert clone(bit | 17) == denied()
    assert verdict(program, 435, architecture=architecture) == denied(errno.ENOSYS)


@each_row(
    ("number", "place"),
    [(83, 1), (85, 1), (90, 1), (91, 1), (133, 1), (258, 2), (259, 2), (268, 2), (452, 2)],
)
def test_no_call_gives_a_file_a_set_id_bit_on_x86(number: int, place: int) -> None:
    assert _with_mode(number, place, 0o100755) == _ALLOW
    for bit in (0o4000, 0o2000, 0o6000):
        assert _with_mode(number, place, 0o755 | bit) == denied()


@each_row(("number", "place"), [(2, 1), (257, 2)])
def test_opening_makes_no_file_with_a_set_id_bit_on_x86(number: int, place: int) -> None:
    for making in (os.O_CREAT, os.O_CREAT | os.O_EXCL, 0o20200000):
        assert _with_mode(number, place, making, 0o644) == _ALLOW
        assert _with_mode(number, place, making, 0o4755) == denied()
    # Where no file is made the mode is whatever the register holds.
    assert _with_mode(number, place, os.O_RDONLY | os.O_DIRECTORY, 0o7777) == _ALLOW
    program = filter_program("x86_64")
    assert verdict(program, 437, architecture=0xC000003E) == denied(errno.ENOSYS)


def _with_mode(number: int, place: int, *values: int) -> int:
    """Judge a call on x86_64 with these values from the argument at `place` on."""
    arguments = [*([0] * place), *values]
    return verdict(
        filter_program("x86_64"),
        number,
        architecture=0xC000003E,
        first=arguments[0],
        rest=arguments[1:],
    )


@each_row("number", [425, 426, 427, 428, 429, 430, 438, 442])
def test_io_uring_and_new_mounts_are_denied_everywhere(machine: str, number: int) -> None:
    program, architecture = filter_program(machine), _ARCHITECTURES[machine]
    assert verdict(program, number, architecture=architecture) == denied()


@each_row("number", [101, 165, 246, 248, 250, 272, 298, 308, 310, 311, 321, 323])
def test_reaching_into_others_is_denied_on_x86(number: int) -> None:
    program = filter_program("x86_64")
    assert verdict(program, number, architecture=0xC000003E) == denied()
    assert verdict(program, number | 0x40000000, architecture=0xC000003E) == denied()  # x32


@each_row("number", [0, 1, 2, 9, 53, 57, 59, 202, 231, 257, 334, 439, 449])
def test_ordinary_calls_are_allowed_on_x86(number: int) -> None:
    assert verdict(filter_program("x86_64"), number, architecture=0xC000003E) == _ALLOW


def test_an_unknown_machine_has_no_filter() -> None:
    assert filter_program("sparc64") == b""


@pytest.mark.sandbox
@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
@pytest.mark.skipif(not Path(_PYTHON).exists(), reason="no python under /usr")
async def test_the_kernel_agrees(tmp_path: Path) -> None:
    script = """
import ctypes, json, os, socket, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    ctypes.set_errno(0)
    return 0 if libc.syscall(*args) >= 0 else ctypes.get_errno()
numbers = (101, 103, 154, 165, 246, 250, 272, 310, 321, 425, 438)
said = {str(n): call(n, 0, 0, 0, 0, 0) for n in numbers}
said["personality"] = call(135, 0x0040000)
said["TIOCSTI"] = call(16, 0, 0x5412, 0)
assert call(135, 0xFFFFFFFF) == 0
for family in (socket.AF_UNIX, socket.AF_PACKET, 38, socket.AF_VSOCK):
    try:
        socket.socket(family, socket.SOCK_STREAM); said[f"family {family}"] = 0
    except OSError as error:
        said[f"family {family}"] = error.errno
done = []
thread = threading.Thread(target=done.append, args=(1,)); thread.start(); thread.join()
a, b = socket.socketpair(); a.send(b"x"); done.append(b.recv(1).decode())
socket.socket(socket.AF_INET)
done.append(subprocess.run(["echo", "ok"], capture_output=True, text=True).stdout)
print(json.dumps([said, done]))
"""
    sandbox = Sandbox(SandboxSettings())
    status = await sandbox.probe()
    assert status.reason == ""
    result = await sandbox.run(ChildCommand(argv=(_PYTHON, "-c", script), workspace=tmp_path))
    said, done = json.loads(result.output)
    assert set(said.values()) == {errno.EPERM}, said
    assert done == [1, "x", "ok\n"]


@pytest.mark.sandbox
@pytest.mark.parametrize("version", [0, landlock.abi()])
async def test_no_command_begins_before_the_first_process_of_its_namespace_is_held(
    tmp_path: Path, version: int
) -> None:
    bwrap, machine = shutil.which("bwrap"), platform.machine()
    assert bwrap is not None
    command = ChildCommand(
        argv=("grep", "-E", "^(Seccomp|CapEff):", "/proc/1/status"), workspace=tmp_path
    )
    program = filter_program(machine)
    host = HostFacts(bwrap=bwrap, prlimit="", seccomp=program, landlock=(version, machine))

    async def seen(host: HostFacts) -> str:
        # The first process closes them, one after the other, before it takes its filter.
        plan = bubblewrap_plan(command, host)
        plan.files.update({f"unused-{number}": b"" for number in range(_MANY_FILES)})
        return (await run_plan(plan, command, registry=None, on_output=None)).output

    held = f"CapEff:\t{0:016x}\nSeccomp:\t2\n"
    unheld = msgspec.structs.replace(host, landlock=(0, ""))
    assert [await seen(host) for _ in range(5)] == [held] * 5
    # Without the starter a command is earlier sooner or later: so there is something to wait for.
    assert any([held != await seen(unheld) for _ in range(30)])
