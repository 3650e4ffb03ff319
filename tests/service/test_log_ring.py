"""The kept lines of the log: newest first asked for, then what came since, never without bound."""

import logging
from collections.abc import Iterator

import pytest

from clawd.security.redact import Redactor
from clawd.service.logs import KEPT_CHARACTERS, KEPT_LINES, LogRing, ring, set_up
from clawd.wire.daemon import TailLog
from tests.support.rows import each_row

SECRET = "correct-horse-battery"
log = logging.getLogger("clawd.test")


@pytest.fixture
def kept() -> Iterator[LogRing]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    set_up({}, Redactor([SECRET], b"k" * 32))
    yield ring()
    root.handlers[:] = before
    root.setLevel(level)


def texts(kept: LogRing, cursor: str = "", limit: int = 100) -> tuple[list[str], str, int]:
    page = kept.page(TailLog(cursor=cursor, limit=limit))
    return [line.text for line in page.items], page.cursor, page.missed


def test_the_newest_lines_come_first_and_a_cursor_leads_on(kept: LogRing) -> None:
    for number in range(5):
        log.info("line %d", number)
    assert texts(kept, limit=2) == (["line 3", "line 4"], "5", 0)
    assert texts(kept, "5") == ([], "5", 0)
    log.warning("later", extra={"tool": "time"})
    page = kept.page(TailLog(cursor="5"))
    assert [(line.level, line.logger, line.text) for line in page.items] == [
        ("warning", "clawd.test", "later tool=time")
    ]
    assert texts(kept, "2", limit=2) == (["line 2", "line 3"], "4", 0)


def test_secrets_are_replaced_in_what_is_kept(kept: LogRing) -> None:
    log.error("key %s", SECRET, exc_info=ValueError(SECRET), extra={"also": SECRET})
    ((text,), _, _) = texts(kept)
    assert SECRET not in text
    assert text.count("[secret:") == 3


def test_what_is_kept_has_a_bound_and_what_is_lost_is_counted(kept: LogRing) -> None:
    log.info("x" * 50_000)
    assert len(kept.page(TailLog()).items[0].text) <= KEPT_CHARACTERS
    for number in range(KEPT_LINES + 9):
        log.info("line %d", number)
    items, cursor, missed = texts(kept, "1", limit=1)
    assert (items, missed) == (["line 9"], 9)
    assert cursor == "11"


@each_row("cursor", ["-1", "x", "9" * 40, "١", "77"], fresh=["kept"])
def test_a_cursor_that_is_none_of_ours_gives_the_newest(kept: LogRing, cursor: str) -> None:
    log.info("one")
    assert texts(kept, cursor) == (["one"], "1", 0)
