"""When an answer is a loop, and when it only has much that is alike; and that every one ends."""

import itertools
import random
import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from clawd.engine.protocol import LOOP_TOKENS, MAX_ANSWER_TOKENS, Sampling
from clawd.engine.worker.generation import (
    TINY_LOOP_TOKENS,
    GenerationState,
    StopMatcher,
    Utf8Decoder,
)
from clawd.engine.worker.prompt import Part
from tests.support.rows import each_row

# Words, runs of blanks, and every digit and sign by itself, as real vocabularies have them.
_TOKEN = re.compile(r" ?[A-Za-z]+|\n|\s+|.")
_RANDOM = random.Random(1)


def _lines(line: str, count: int = 400) -> str:
    return "".join(line.format(n=number, m=_RANDOM.randrange(100)) for number in range(count))


LEGITIMATE = {
    "numbered list": _lines("{n}. Wash the dishes\n"),
    "table of numbers": _lines("| row {n} | {m} | ok | yes |\n"),
    "table with one new cell a row": _lines("| {n} | pending | pending | pending |\n"),
    "wide table with one new cell a row": _lines(
        "| {n}" + " | nothing to report today" * 12 + " |\n"
    ),
    "code": _lines("    self.assertEqual(convert(values[{n}]), expected[{n}])\n"),
    "long statements": _lines(
        'INSERT INTO measurements (station, kind, value) VALUES ("north", "wind", {n});\n'
    ),
    "JSON array of objects": "[" + _lines('{{"id": {n}, "name": "none", "tags": []}}, ') + "]",
    "array of bits": "".join(f"{_RANDOM.randrange(2)}, " for _ in range(600)),
    "sparse matrix": "".join(f"{int(_RANDOM.random() < 0.15)} " for _ in range(1500)),
    "a page twice": 2 * _lines("The {n}th of {m} stood there and looked at me. ", 60),
}
LOOPS = {
    "one emoji": "\U0001f600" * 600,
    "a sentence": "I am sorry, but I cannot help with that. " * 80,
    "a sentence with a slip now and then": ("I do not know. " * 60 + "Well. ") * 4,
    "a paragraph": " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(200)) * 6,
    "equal rows of a table": "| a | b | c |\n" * 120,
}


def _tokens(text: str) -> list[int]:
    known: dict[str, int] = {}
    return [known.setdefault(word, len(known)) for word in _TOKEN.findall(text)]


def _generation(*, stop_loops: bool = True, max_tokens: int = 1 << 20) -> GenerationState:
    sampling = Sampling(temperature=0, max_tokens=max_tokens, stop_loops=stop_loops)
    return GenerationState(1, (Part(text="p", tokens=(1,), generated=False),), sampling)


def _ended_after(generation: GenerationState, tokens: list[int] | Iterator[int]) -> int:
    """Return how many tokens were taken when it ended by itself; 0 when it did not."""
    for count, token in enumerate(tokens, 1):
        if generation.push(token, b"x") is not None:
            return count
    return 0


@each_row(("name", "text"), list(LEGITIMATE.items()))
def test_what_is_alike_but_not_the_same_is_no_loop(name: str, text: str) -> None:
    tokens = _tokens(text)
    assert len(tokens) > LOOP_TOKENS, name
    assert _ended_after(_generation(), tokens) == 0, name


@each_row(("name", "text"), list(LOOPS.items()))
def test_r10_a_loop_ends_within_512_tokens_of_repetition_and_says_so(name: str, text: str) -> None:
    tokens = _tokens(text)
    generation = _generation()
    ended = _ended_after(generation, tokens)
    passage = len(set(tokens))
    assert 0 < ended <= LOOP_TOKENS + max(passage, 1), name
    _, done = generation.finish("stop", 1.0)
    assert (done.reason, done.is_loop) == ("stop", True)
    assert _ended_after(_generation(stop_loops=False), tokens) == 0


TINY = {
    name: text
    for name, text in LEGITIMATE.items()
    if "wide" not in name and "bits" not in name and "matrix" not in name
}
TINY_LOOPS = {
    "dudu": " Saved: qwe zxc" + " duck" * 100,
    "a hint": "I did not do that. It was denied: " + "mode full replaces " * 60,
    "dots": "answer in plain words" + " ." * 100,
}


@each_row(("name", "text", "loops"), [
    *((name, text, False) for name, text in TINY.items()),
    *((name, text, True) for name, text in TINY_LOOPS.items()),
])  # fmt: skip
def test_r7_a_tiny_model_is_ended_while_its_answer_is_short(
    name: str, text: str, *, loops: bool
) -> None:
    tokens = _tokens(text)
    sampling = Sampling(temperature=0, max_tokens=320, loop_tokens=TINY_LOOP_TOKENS)
    generation = GenerationState(1, (Part(text="p", tokens=(1,), generated=False),), sampling)
    ended = _ended_after(generation, tokens[:300])
    assert (0 < ended <= 2 * TINY_LOOP_TOKENS) == loops, (name, ended)
    assert generation.finish("stop", 1.0)[1].is_loop == loops


def test_a_loop_that_begins_late_is_found_as_well() -> None:
    before = [_RANDOM.randrange(50_000) for _ in range(3000)]
    ended = _ended_after(_generation(), [*before, *([7, 8, 9] * 400)])
    assert len(before) < ended <= len(before) + LOOP_TOKENS + 32


def test_r10_an_answer_for_which_no_limit_was_asked_has_one() -> None:
    endless = itertools.count()
    assert _ended_after(_generation(max_tokens=0), endless) == MAX_ANSWER_TOKENS
    assert _ended_after(_generation(max_tokens=9000), endless) == 9000


def cuts(length: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, length), max_size=8).map(sorted)


@given(st.text(max_size=30), st.data())
def test_characters_are_whole_for_every_split(text: str, data: st.DataObject) -> None:
    encoded = text.encode()
    borders = [0, *data.draw(cuts(len(encoded))), len(encoded)]
    decoder = Utf8Decoder()
    pieces = [decoder.push(encoded[a:b]) for a, b in itertools.pairwise(borders)] + [
        decoder.flush()
    ]
    assert "".join(pieces) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    decoder = Utf8Decoder()
    assert decoder.push(b"a\xffb\xe2\x82") + decoder.flush() == "a\ufffdb\ufffd"


SMALL = st.text(alphabet="ab<", max_size=20)
STOPS = st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), max_size=3).map(tuple)


@given(SMALL, STOPS, st.data())
def test_what_is_shown_ends_before_the_first_stop_for_every_split(
    text: str, stops: tuple[str, ...], data: st.DataObject
) -> None:
    borders = [0, *data.draw(cuts(len(text))), len(text)]
    matcher = StopMatcher(stops)
    shown = ""
    taken = ""
    for start, end in itertools.pairwise(borders):
        if matcher.is_stopped:
            break
        taken += text[start:end]
        shown += matcher.push(text[start:end])
        found = [taken.find(stop) for stop in stops if stop in taken]
        assert matcher.is_stopped == bool(found)
        assert taken.startswith(shown)
        if found:
            assert shown == taken[: min(found)]
            assert taken.startswith(matcher.stopped_by, min(found))
            assert matcher.stopped_by in stops
        else:
            held = taken[len(shown) :]
            assert not held or any(stop.startswith(held) for stop in stops)
    if not matcher.is_stopped:
        assert shown + matcher.flush() == text


def test_nothing_is_shown_after_a_stop() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.push("one EN") == "one "
    assert matcher.push("D two") == ""
    assert matcher.push("three") == ""
    assert matcher.flush() == ""


def test_without_stop_strings_nothing_is_held() -> None:
    assert StopMatcher(("",)).push("text") == "text"
