"""Which untrusted sources have spoken in a conversation."""

from clawd.security.taint import MAX_SOURCES, TaintBook


def test_taint_is_added_once_in_order_and_by_conversation() -> None:
    book = TaintBook()
    assert book.mark("c1", "web example.org")
    assert book.mark("c1", "mcp files")
    assert not book.mark("c1", "web example.org")
    assert book.sources("c1") == ("web example.org", "mcp files")
    assert not book.is_tainted("c2")


def test_a_fork_is_as_tainted_as_its_origin() -> None:
    book = TaintBook()
    book.mark("c1", "web example.org")
    book.copy("c1", "c2")
    book.mark("c2", "mcp files")
    assert book.sources("c1") == ("web example.org",)
    assert book.sources("c2") == ("web example.org", "mcp files")


def test_a_deleted_conversation_is_forgotten() -> None:
    book = TaintBook()
    book.mark("c1", "web example.org")
    book.forget("c1")
    assert not book.is_tainted("c1")


def test_very_many_sources_are_bounded_and_never_dropped_to_none() -> None:
    book = TaintBook()
    for number in range(MAX_SOURCES * 3):
        book.mark("c1", f"web {number}")
    assert len(book.sources("c1")) == MAX_SOURCES + 1
    assert book.sources("c1")[-1] == "more sources"


def test_a_conversation_that_finds_no_room_counts_as_tainted() -> None:
    book = TaintBook(max_conversations=1)
    book.mark("c1", "web example.org")
    assert not book.is_tainted("c2")
    assert book.mark("c2", "mcp files")
    assert book.is_tainted("c2")
    assert book.sources("c1") == ("web example.org",)
