"""A program of a few hundred bytes that puts Landlock in force and becomes another program.

    program = starter("x86_64", [("/home/ada/w", WRITE), ("/dev/null", CHANGE)], WRITE, name="ls")
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
"""Its exit code where Landlock could not be put in force."""

MIN_ABI = 2
"""Linux 5.19: below it nothing could be moved from one folder to another, wherever they are."""

_BASE = 0x400000
_HEADERS_BYTES = 64 + 56
_MACHINES = {"x86_64": 62, "aarch64": 183}  # elf.h: EM_X86_64, EM_AARCH64
_RULES_AT = 10  # words of 8 bytes that precede the rules, see `_data`

# The registers hold, by machine: where the data lies (rbx, x19), the ruleset (r12, w21), a cursor
# (r13, x22), the new argv (r14, x23), the environment (r15, x24), the exit code (ebp, w25).
_CODE = {
    "x86_64": (
        # create_ruleset(data, data[3], 0), or it failed
        "488d1d41010000 4889df 488b7318 31d2 b8bc010000 0f05 85c0 0f8802010000 4189c4 4c8d6b50"
        # until a rule's path is 0: openat(cwd, path, PATH|CLOEXEC, 0); what is not there is skipped
        "498b7500 4885f6 744f bf9cffffff ba00002800 4531d2 b801010000 0f05 85c0 7831"
        # add_rule(ruleset, PATH_BENEATH, {rights, descriptor}, 0), or it failed
        "498b5508 4883ec10 48891424 89442408 4489e7 be01000000 4889e2 4531d2 b8bd010000 0f05"
        "4883c410 85c0 0f85a9000000 4983c510 eba8"
        # restrict_self(ruleset, 0), close_range(3, last, 0), or it failed
        "4489e7 31f6 b8be010000 0f05 85c0 0f858f000000"
        "bf03000000 beffffffff 31d2 b8b4010000 0f05 85c0 7578"
        # the new argv follows the empty word, the environment follows argv
        "4c8d6c2410 4d89ee 498b3e 4983c608 803f00 75f4 488b0424 4c8d7cc410 bd7f000000"
        # until the empty word: execve(path, argv + 1, environment); ENOENT and ENOTDIR: the next
        "498b7d00 4983c508 803f00 743a 498d7608 4c89fa b83b000000 0f05 83f8fe 74e0 83f8ec 74db"
        # 126 from now on; ENOEXEC: execve(argv[0], argv with the path as argv[1], environment)
        "bd7e000000 83f8f8 75d1 498b45f8 49894608 498b3e 4c89f6 4c89fa b83b000000 0f05"
        # write(2, the text for 127, 126 or, where it failed, 125), exit_group(the code)
        "4c8d6b20 83fd7f 740f 4c8d6b30 eb09 bd7d000000 4c8d6b40"
        "bf02000000 498b7500 498b5508 b801000000 0f05 89ef b8e7000000 0f05 90"
    ),
    "aarch64": (
        "d30a0010 f4030091 e00313aa 610e40f9 020080d2 883780d2 010000d4 a008f837 f503002a 76420191"
        "c10240f9 610200b4 600c8092 0205a0d2 030080d2 080780d2 010000d4 6001f837"
        "c10640f9 e103bfa9 e003152a 210080d2 e2030091 030080d2 a83780d2 010000d4"
        "ff430091 20060035 d6420091 edffff17"
        "e003152a 010080d2 c83780d2 010000d4 40050035"
        "600080d2 01008012 020080d2 883680d2 010000d4 80040035"
        "96420091 f70316aa e08640f8 01004039 c1ffff35 810240f9 980e018b 18430091 f90f8052"
        "c08640f8 01004039 61020034 e1220091 e20318aa a81b80d2 010000d4 1f080031 00ffff54"
        "1f500031 c0feff54"
        "d90f8052 1f200031 61feff54 c1825ff8 e10600f9 e00240f9 e10317aa e20318aa a81b80d2 010000d4"
        "76820091 3fff0171 a0000054 76c20091 03000014 b90f8052 76020191"
        "400080d2 c10a40a9 080880d2 010000d4 e003192a c80b80d2 010000d4 1f2003d5"
    ),
}


def starter(machine: str, rules: Iterable[Rule], handled: int, version: int, *, name: str) -> bytes:
    """Return the program; empty for a machine that it is not written for.

    Args:
        machine: as `platform.machine()` names it.
        rules: what is granted, by paths as the program sees them; one that is not there is skipped.
        handled: the rights to files that nobody has where no rule grants them.
        version: the kernel's Landlock; signals and abstract sockets are held where it can.
        name: of the command, for what is said where it cannot be started.
    """
    if machine not in _CODE:
        return b""
    code = bytes.fromhex(_CODE[machine])
    begin = _BASE + _HEADERS_BYTES
    rest = _data(rules, handled_rights(version) & handled, scopes(version), name, begin + len(code))
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


def _data(rules: Iterable[Rule], handled: int, scoped: int, name: str, begin: int) -> bytes:
    """Return what the code reads: struct landlock_ruleset_attr and its size, three texts, rules."""
    texts = [
        f"{name}: No such file or directory\n",
        f"{name}: Permission denied, or no program of this machine\n",
        "Landlock cannot be put in force\n",
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
    for path, rights in granted:
        words += [at + len(strings), rights]
        strings += os.fsencode(path) + b"\0"
    return struct.pack(f"<{len(words) + 1}Q", *words, 0) + strings


def _possible(path: str) -> int:
    """Return the rights that can be granted at a path: those to a file are few."""
    there = Path(path)
    # What is there in the sandbox alone is a folder.
    return -1 if there.is_dir() or not there.exists() else FILE_RIGHTS
