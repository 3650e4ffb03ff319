"""A processor for small programs of aarch64: the instructions that ours are made of, no others.

Encodings: Arm Architecture Reference Manual, C4 (A64). What is not known raises, so that a program
cannot pass by an instruction that was misread.
"""

import struct
from collections.abc import Callable

STACK_TOP = 0x7FFF_0000
_STACK_BYTES = 1 << 17
_MASK = (1 << 64) - 1
_SP = 31
MAX_STEPS = 100_000

Call = Callable[["Arm64", int, list[int]], int]
"""Answers a system call: the machine, its number, its arguments; a negative number is an error."""


class EndedError(Exception):
    """Raised by who answers system calls where the program goes no further."""


class Arm64:
    """Runs an ELF file of one segment.

    Args:
        program: the file.
        argv: its arguments, the first one included.
        environ: its environment, `NAME=value` each.
        call: answers its system calls.
    """

    def __init__(self, program: bytes, argv: list[str], environ: list[str], call: Call) -> None:
        kind, machine, _, entry, segments = struct.unpack_from("<HHIQQ", program, 16)
        assert (program[:6], kind, machine) == (b"\x7fELF\x02\x01", 2, 183)
        what, flags, offset, base, _, size = struct.unpack_from("<IIQQQQ", program, segments)
        assert (what, flags & 3, offset, size) == (1, 1, 0, len(program)), "to be run, not written"
        stack = bytearray(_STACK_BYTES)
        self._memory = [(base, bytearray(program)), (STACK_TOP - _STACK_BYTES, stack)]
        self._registers = [0] * 31
        self._sp = STACK_TOP
        self._pc: int = entry
        self._is_zero = False
        self._call = call
        self._push(argv, environ)

    def run(self) -> None:
        """Run until who answers raises `EndedError`."""
        for _ in range(MAX_STEPS):
            (word,) = struct.unpack("<I", self.read(self._pc, 4))
            self._step(word)
        raise AssertionError("it runs without an end")

    def read(self, at: int, size: int) -> bytes:
        """Return bytes of the memory."""
        block, start = self._block(at, size)
        return bytes(block[start : start + size])

    def fill(self, at: int, data: bytes) -> None:
        """Write what the kernel puts into a buffer."""
        self._write(at, data)

    def text(self, at: int) -> str:
        """Return the text that ends with a zero."""
        found = b""
        while (byte := self.read(at + len(found), 1)) != b"\0":
            found += byte
        return found.decode()

    def texts(self, at: int) -> list[str]:
        """Return the texts that a list of pointers, ended by zero, leads to."""
        found: list[str] = []
        while pointer := self._word(at + 8 * len(found)):
            found.append(self.text(pointer))
        return found

    def _push(self, argv: list[str], environ: list[str]) -> None:
        pointers: list[int] = [len(argv)]
        for texts in (argv, environ):
            for text in texts:
                held = text.encode() + b"\0"
                self._sp -= len(held)
                self._write(self._sp, held)
                pointers.append(self._sp)
            pointers.append(0)
        self._sp = (self._sp - 8 * len(pointers)) & ~15
        self._write(self._sp, struct.pack(f"<{len(pointers)}Q", *pointers))

    def _block(self, at: int, size: int) -> tuple[bytearray, int]:
        for start, block in self._memory:
            if start <= at and at + size <= start + len(block):
                return block, at - start
        raise AssertionError(f"{size} bytes at {at:#x} are not there")

    def _write(self, at: int, data: bytes) -> None:
        block, start = self._block(at, len(data))
        assert block is self._memory[1][1], "the segment is not to be written"
        block[start : start + len(data)] = data

    def _word(self, at: int) -> int:
        return int(struct.unpack("<Q", self.read(at, 8))[0])

    def _get(self, number: int, *, sp: bool = False) -> int:
        if number == _SP:
            return self._sp if sp else 0
        return self._registers[number]

    def _set(self, number: int, value: int, *, wide: bool = True, sp: bool = False) -> None:
        value &= _MASK if wide else 0xFFFF_FFFF
        if number != _SP:
            self._registers[number] = value
        elif sp:
            self._sp = value

    def _step(self, word: int) -> None:
        after = self._pc + 4
        d, n = word & 31, word >> 5 & 31
        if word == 0xD4000001:  # svc #0
            self._pc = after
            answered = self._call(self, self._get(8), [self._get(each) for each in range(6)])
            self._set(0, answered)
        elif word != 0xD503201F and not self._moved(word, d, n) and not self._loaded(word, d, n):
            after = self._jumped(word, d)
        self._pc = after

    def _moved(self, word: int, d: int, n: int) -> bool:
        wide = bool(word >> 31)
        value = word >> 10 & 0xFFF
        match word & 0x7F80_0000:
            case 0x5280_0000:  # movz
                self._set(d, (word >> 5 & 0xFFFF) << 16 * (word >> 21 & 3), wide=wide)
            case 0x1280_0000:  # movn
                self._set(d, ~((word >> 5 & 0xFFFF) << 16 * (word >> 21 & 3)), wide=wide)
            case (0x1100_0000 | 0x5100_0000) as kind:  # add, sub, immediate
                other = (value if kind == 0x1100_0000 else -value) << 12 * (word >> 22 & 1)
                self._set(d, self._get(n, sp=True) + other, wide=wide, sp=True)
            case (0x3100_0000 | 0x7100_0000) as kind if d == _SP and not wide:  # cmn, cmp
                other = value if kind == 0x3100_0000 else -value
                self._is_zero = (self._get(n) + other) & 0xFFFF_FFFF == 0
            case 0x2A00_0000 if not word >> 10 & 0x3F and n == _SP:  # mov, register
                self._set(d, self._get(word >> 16 & 31), wide=wide)
            case (0x0B00_0000 | 0x4B00_0000) as kind if not word >> 21 & 7 and wide:
                # add, sub, register shifted left
                other = self._get(word >> 16 & 31) << (word >> 10 & 63)
                self._set(d, self._get(n) + (other if kind == 0x0B00_0000 else -other))
            case _ if word & 0x9F00_0000 == 0x1000_0000:  # adr
                distance = _signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
                self._set(d, self._pc + distance)
            case _:
                return False
        return True

    def _loaded(self, word: int, d: int, n: int) -> bool:
        base = self._get(n, sp=True)
        scaled, near = word >> 10 & 0xFFF, _signed(word >> 12 & 0x1FF, 9)
        second, paired = word >> 10 & 31, 8 * _signed(word >> 15 & 0x7F, 7)
        if word & 0xFFC0_0000 == 0xF940_0000:  # ldr
            self._set(d, self._word(base + 8 * scaled))
        elif word & 0xFFC0_0000 == 0xF900_0000:  # str
            self._write(base + 8 * scaled, struct.pack("<Q", self._get(d)))
        elif word & 0xFFC0_0000 == 0x3940_0000:  # ldrb
            self._set(d, self.read(base + scaled, 1)[0])
        elif word & 0xFFE0_0C00 == 0xF840_0400:  # ldr, and the base moves after
            self._set(d, self._word(base))
            self._set(n, base + near, sp=True)
        elif word & 0xFFE0_0C00 == 0xF840_0000:  # ldur
            self._set(d, self._word(base + near))
        elif word & 0xFFC0_0000 == 0xA980_0000:  # stp, the base moves before
            self._set(n, base + paired, sp=True)
            self._write(base + paired, struct.pack("<QQ", self._get(d), self._get(second)))
        elif word & 0xFFC0_0000 == 0xA940_0000:  # ldp
            self._set(d, self._word(base + paired))
            self._set(second, self._word(base + paired + 8))
        else:
            return False
        return True

    def _jumped(self, word: int, d: int) -> int:
        """Return where it goes on after a jump."""
        near = 4 * _signed(word >> 5 & 0x7FFFF, 19)
        if word & 0xFC00_0000 == 0x1400_0000:  # b
            return self._pc + 4 * _signed(word & 0x3FF_FFFF, 26)
        if word & 0x7E00_0000 == 0x3400_0000:  # cbz, cbnz
            value = self._get(d) & (_MASK if word >> 31 else 0xFFFF_FFFF)
            is_taken = (value == 0) != bool(word >> 24 & 1)
        elif word & 0x7F00_0000 == 0x3700_0000:  # tbnz
            bit = (word >> 31) << 5 | word >> 19 & 31
            near = 4 * _signed(word >> 5 & 0x3FFF, 14)
            is_taken = bool(self._get(d) >> bit & 1)
        elif word & 0xFF00_001E == 0x5400_0000:  # b.eq, b.ne
            is_taken = self._is_zero != bool(word & 1)
        else:
            raise AssertionError(f"no instruction known: {word:08x} at {self._pc:#x}")
        return self._pc + (near if is_taken else 4)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
