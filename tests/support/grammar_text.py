"""Which texts a grammar lets through, and texts that it does: bytes through llguidance itself."""

import random
from collections.abc import Sequence
from functools import cache

from clawd.engine.worker.guidance import Guidance, Matcher

END = 256
_PRINTABLE = frozenset({0x0A, *range(0x20, 0x7F)})
# After so many bytes what ends the text is preferred.
_ENOUGH = 120
_MOST = 8000
_FEW = 12
_CLOSING = frozenset(b'"}])>,:')
_BLANK = frozenset(b" \n\t")
# Bytes from which on a text may be anything.
_FREE = 90


@cache
def byte_guidance() -> Guidance:
    """Return guidance for a vocabulary of the bytes, and one token that ends an answer."""
    return Guidance(lambda: ([*(bytes([byte]) for byte in range(256)), b"<end>"], [END]))


def compiled(lark: str) -> Matcher:
    """Return a grammar at its beginning, by bytes."""
    return byte_guidance().compile(lark)


class GrammarText:
    """One grammar at its beginning."""

    def __init__(self, beginning: Matcher | None) -> None:
        assert beginning is not None
        self._beginning = beginning

    def describes(self, text: str) -> bool:
        """Return whether the whole text is described."""
        at = self._beginning.anew()
        for byte in text.encode(errors="surrogatepass"):
            if not at.allows(byte):
                return False
            at.accept(byte)
        return at.may_end() and at.allows(END)

    def sample(self, seed: int, endings: Sequence[str] = ()) -> str:
        """Return one text that is described; the same for the same seed.

        `endings` are what closes texts that may be anything, which chance would not hit upon.
        """
        chance = random.Random(seed)
        at, out = self._beginning.anew(), bytearray()
        while len(out) < _MOST:
            allowed = [int(token) for token in at.allowed()]
            assert allowed, (bytes(out), at.error)
            if END in allowed and (len(allowed) == 1 or chance.random() < 0.5):
                return out.decode()
            is_long = len(out) > _ENOUGH
            if len(allowed) > _FREE and chance.random() < (0.5 if is_long else 0.15):
                at, out = _ended(at, out, endings)
                continue
            plain = [byte for byte in allowed if byte != END]
            if len(plain) > _FEW:
                plain = [byte for byte in plain if byte in _PRINTABLE]
            if out[-1:].isdigit():
                # No end is set to the digits of an exponent, which not every reader takes.
                plain = [byte for byte in plain if byte not in b"eE"] or plain
            if chance.random() < 0.7:
                plain = [byte for byte in plain if byte not in _BLANK] or plain
            closing = [byte for byte in plain if byte in _CLOSING]
            byte = chance.choice(
                closing if closing and is_long and chance.random() < 0.6 else plain
            )
            at.accept(byte)
            out.append(byte)
        raise AssertionError(f"no end: {bytes(out[:400])!r}")


def _ended(at: Matcher, out: bytearray, endings: Sequence[str]) -> tuple[Matcher, bytearray]:
    """Return where a text is closed by one of these, or by a quote."""
    for ending in ('"', *endings):
        there = at.anew()
        for byte in ending.encode():
            if not there.allows(byte):
                break
            there.accept(byte)
        else:
            if len(there.allowed()) <= _FREE:
                return there, out + ending.encode()
    return at, out
