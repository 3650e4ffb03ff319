"""Text of tokens: characters and stop strings over every border."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from clawd.engine.worker.text import StopMatcher, Utf8Decoder


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
