"""A program of a few hundred bytes that puts Landlock in force and becomes another program.

    rules = [("/home/ada/w", WRITE), ("/dev/null", CHANGE)]
    program = starter("x86_64", rules, WRITE, landlock.abi(), name="ls", waits=True)
    argv = start_words(("ls", "-l"), "/usr/bin:/bin")

A process restricted by Landlock can mount nothing any more, so this cannot be done before a
sandbox of mounts is set up; it must come between that and the command. An interpreter takes ten
milliseconds for it, this takes a fraction of one. It is an ELF file of one segment: code, then what
the code reads. It makes the ruleset, restricts itself, closes all descriptors but the first three
and tries the paths that it was given, as execvp(3) does. Where Landlock fails, nothing is run.
"""

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from clawd.kernel.landlock import FILE_RIGHTS, Rule, handled_rights, scopes

NOT_RESTRICTED = 125
"""Its exit code where Landlock cannot be put in force, or the first process gets no filter."""

MIN_ABI = 2
"""Linux 5.19: below it nothing could be moved from one folder to another, wherever they are."""

_BASE = 0x400000
_HEADERS_BYTES = 64 + 56
_MACHINES = {"x86_64": 62, "aarch64": 183}  # elf.h: EM_X86_64, EM_AARCH64
_RULES_AT = 16  # words of 8 bytes that precede the rules, see `_data`
_FIRST_PROCESS = b"/proc/1/status"
_HAS_FILTER = b"comp:\t2\n"  # the end of its line on seccomp: SECCOMP_MODE_FILTER
_LOOK_EVERY_NS = 100_000

# The registers hold, by machine: where the data lies (rbx, x19), the ruleset (r12, w21), a cursor
# (r13, x22), the new argv (r14, x23), the environment (r15, x24), the exit code (ebp, w25).
_CODE = {
    "x86_64": (
        # create_ruleset(data, data[3], 0), or it failed; where nothing is handled: on to the wait
        "488d1dd9010000 48833b00 0f848e000000 4889df 488b7318 31d2 b8bc010000 0f05 85c0"
        "0f888e010000 4189c4 4c8dab80000000"
        # until a rule's path is 0: openat(cwd, path, PATH|CLOEXEC, 0); what is not there is skipped
        "498b7500 4885f6 744f bf9cffffff ba00002800 4531d2 b801010000 0f05 85c0 7831"
        # add_rule(ruleset, PATH_BENEATH, {rights, descriptor}, 0), or it failed
        "498b5508 4883ec10 48891424 89442408 4489e7 be01000000 4889e2 4531d2 b8bd010000 0f05"
        "4883c410 85c0 0f8532010000 4983c510 eba8"
        # restrict_self(ruleset, 0), or it failed
        "4489e7 31f6 b8be010000 0f05 85c0 0f8518010000"
        # where there is something to wait for: openat(cwd, data[10], CLOEXEC, 0), or it failed
        "488b7350 4885f6 747a bf9cffffff ba00000800 4531d2 b801010000 0f05 85c0 0f88ed000000"
        "4189c4 bd00000100 4881ec00000100"
        # pread(that, stack, 64 KiB, 0), and look for the word data[11] in it
        "4489e7 4889e6 ba00000100 4531d2 b811000000 0f05"
        "4c8d4404f8 4989e5 488b5358 4d39c5 7f0b 49395500 741c 49ffc5 ebf0"
        # not there: nanosleep(data + 12, 0) and again, 65536 times, or it failed
        "ffcd 0f84a5000000 488d7b60 31f6 b823000000 0f05 ebb8 4881c400000100"
        # close_range(3, last, 0), or it failed
        "bf03000000 beffffffff 31d2 b8b4010000 0f05 85c0 757e"
        # the new argv follows the empty word, the environment follows argv
        "4c8d6c2410 4d89ee 498b3e 4983c608 803f00 75f4 488b0424 4c8d7cc410 bd7f000000"
        # until the empty word: execve(path, argv + 1, environment); ENOENT and ENOTDIR: the next
        "498b7d00 4983c508 803f00 743a 498d7608 4c89fa b83b000000 0f05 83f8fe 74e0 83f8ec 74db"
        # 126 from now on; ENOEXEC: execve(argv[0], argv with the path as argv[1], environment)
        "bd7e000000 83f8f8 75d1 498b45f8 49894608 498b3e 4c89f6 4c89fa b83b000000 0f05"
        # write(2, the text for 127, 126 or, where it failed, 125), exit_group(the code)
        "4c8d6b20 83fd7f 7415 4c8d6b30 eb0f 4c8d6b70 eb04 4c8d6b40 bd7d000000"
        "bf02000000 498b7500 498b5508 b801000000 0f05 89ef b8e7000000 0f05 0f1f00"
    ),
    "aarch64": (
        "930f0010 f4030091 610240f9 410400b4 e00313aa 610e40f9 020080d2 883780d2 010000d4"
        "400df837 f503002a 76020291"
        "c10240f9 610200b4 600c8092 0205a0d2 030080d2 080780d2 010000d4 6001f837"
        "c10640f9 e103bfa9 e003152a 210080d2 e2030091 030080d2 a83780d2 010000d4"
        "ff430091 c00a0035 d6420091 edffff17"
        "e003152a 010080d2 c83780d2 010000d4 e0090035"
        "612a40f9 410400b4 600c8092 0201a0d2 030080d2 080780d2 010000d4 a008f837"
        "f503002a 3900a052 ff4340d1"
        "e003152a e1030091 2200a0d2 030080d2 680880d2 010000d4"
        "051c00d1 f6030091 642e40f9 e500f8b7 c50000b4 c31640f8 630004cb 430100b4 a50400d1"
        "faffff17"
        "39070051 19060034 60820191 010080d2 a80c80d2 010000d4 eaffff17 ff434091"
        "600080d2 01008012 020080d2 883680d2 010000d4 c0040035"
        "96420091 f70316aa e08640f8 01004039 c1ffff35 810240f9 980e018b 18430091 f90f8052"
        "c08640f8 01004039 61020034 e1220091 e20318aa a81b80d2 010000d4 1f080031 00ffff54"
        "1f500031 c0feff54"
        "d90f8052 1f200031 61feff54 c1825ff8 e10600f9 e00240f9 e10317aa e20318aa a81b80d2"
        "010000d4"
        "76820091 3fff0171 e0000054 76c20091 05000014 76c20191 02000014 76020191 b90f8052"
        "400080d2 c10a40a9 080880d2 010000d4 e003192a c80b80d2 010000d4"
    ),
}


def starter(
    machine: str,
    rules: Iterable[Rule],
    handled: int,
    version: int,
    *,
    name: str,
    waits: bool = False,
) -> bytes:
    """Return the program; empty for a machine that it is not written for.

    Args:
        machine: as `platform.machine()` names it.
        rules: what is granted, by paths as the program sees them; one that is not there is skipped.
        handled: the rights to files that nobody has where no rule grants them.
        version: the kernel's Landlock; signals and abstract sockets are held where it can. 0 for
            none: then nothing is restricted.
        name: of the command, for what is said where it cannot be started.
        waits: whether process 1 must have a system call filter before the command begins; where it
            has none after ten seconds or so, nothing is run.
    """
    if machine not in _CODE:
        return b""
    code = bytes.fromhex(_CODE[machine])
    begin = _BASE + _HEADERS_BYTES
    handled &= handled_rights(version) if version else 0
    rest = _data(rules, handled, scopes(version), name, begin + len(code), waits=waits)
    size = _HEADERS_BYTES + len(code) + len(rest)
    # Elf64_Ehdr: an executable of one segment; Elf64_Phdr: the whole file, to be read and run.
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, _MACHINES[machine], 1, begin, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000)
    return header + segment + code + rest


def start_words(argv: Sequence[str], path: str) -> tuple[str, ...]:
    """Return the program's arguments: where to look for argv[0], and argv.

    An empty word ends the places; what follows starts a script that names no interpreter.
    """
    places = (argv[0],) if "/" in argv[0] else [f"{p or '.'}/{argv[0]}" for p in path.split(":")]
    return (*places, "", "/bin/sh", *argv)


def _data(
    rules: Iterable[Rule], handled: int, scoped: int, name: str, begin: int, *, waits: bool
) -> bytes:
    """Return what the code reads.

    That is struct landlock_ruleset_attr and its size, three texts, what to wait for (a path, the
    word that must be in the file, struct timespec), a fourth text, the rules.
    """
    texts = [
        f"{name}: No such file or directory\n",
        f"{name}: Permission denied, or no program of this machine\n",
        "Landlock cannot be put in force\n",
        "the sandbox's first process has no system call filter\n",
    ]
    granted = [(path, rights & handled & _possible(path)) for path, rights in rules]
    granted = [(path, rights) for path, rights in granted if rights]
    strings = b""
    at = begin + 8 * (_RULES_AT + 2 * len(granted) + 1)
    # A kernel that knows fewer fields refuses longer structures, unless the rest is zero.
    words = [handled, 0, scoped, 24]
    for text in texts:
        held = os.fsencode(text)
        words += [at + len(strings), len(held)]
        strings += held
    awaited = at + len(strings) if waits else 0
    strings += _FIRST_PROCESS + b"\0"
    words[10:10] = [awaited, int.from_bytes(_HAS_FILTER, "little"), 0, _LOOK_EVERY_NS]
    for path, rights in granted:
        words += [at + len(strings), rights]
        strings += os.fsencode(path) + b"\0"
    return struct.pack(f"<{len(words) + 1}Q", *words, 0) + strings


def _possible(path: str) -> int:
    """Return the rights that can be granted at a path: those to a file are few."""
    there = Path(path)
    # What is there in the sandbox alone is a folder.
    return -1 if there.is_dir() or not there.exists() else FILE_RIGHTS
