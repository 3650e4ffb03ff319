"""Which files hold untrusted text: by mark, by the time of a command, by the owner's patterns."""

import os
import time
from pathlib import Path

import pytest

from clawd.memory.store import Memory
from clawd.security.origin_patterns import PathPatterns
from clawd.security.origins import FOREVER_NS, MAX_CHANGED, MAX_MARKS, UNKNOWN, FileOrigins, Mark
from clawd.security.shell_reads import files_read

WEB = ("example.org",)


def put(folder: Path, name: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("text")
    return file


async def test_a_marked_file_is_found_by_itself_its_folder_and_a_link(tmp_path: Path) -> None:
    origins = FileOrigins()
    file, other = put(tmp_path, "sub/a.txt"), put(tmp_path, "b.txt")
    await origins.mark(file, WEB)
    link = tmp_path / "link"
    link.symlink_to(file)
    expected = (f"the file {file}", "example.org")
    for path in (file, file.parent, tmp_path, link, tmp_path / "sub/../sub/a.txt"):
        assert await origins.sources((path,)) == expected, path
    assert await origins.sources((other,)) == ()
    assert await origins.sources(()) == ()


async def test_a_missing_file_is_as_untrusted_as_the_names_beside_it(tmp_path: Path) -> None:
    origins = FileOrigins()
    await origins.mark(put(tmp_path, "sub/a.txt"), WEB)
    assert await origins.sources((tmp_path / "sub/none",))
    assert not await origins.sources((tmp_path / "other/none",))


async def test_a_marked_file_that_is_gone_is_in_no_folder(tmp_path: Path) -> None:
    origins = FileOrigins()
    file = put(tmp_path, "a.txt")
    await origins.mark(file, WEB)
    file.unlink()
    assert await origins.sources((tmp_path,)) == ()
    put(tmp_path, "a.txt")
    assert await origins.sources((tmp_path,))


async def test_what_changes_during_a_span_is_marked(tmp_path: Path) -> None:
    now = time.time_ns()
    origins = FileOrigins(clock=lambda: now)
    old = put(tmp_path, "old.txt")
    now = old.stat().st_ctime_ns + 1_000_000_000
    span = await origins.begin_span(tmp_path, WEB)
    assert await origins.sources((tmp_path,)), "while it is open, anything may be changed"
    new = put(tmp_path, "deep/er/new.txt")
    os.utime(new, (0, 0))
    now = new.stat().st_ctime_ns + 1
    await origins.end_span(_at(span, new.stat().st_ctime_ns))
    assert await origins.sources((new,)) == (f"the file {new}", "example.org")
    assert await origins.sources((old,)) == ()


def _at(span: Mark, began_at_ns: int) -> Mark:
    """Return the span as if it had begun then, for no test can wait for a clock."""
    import msgspec

    return msgspec.structs.replace(span, began_at_ns=began_at_ns)


async def test_a_command_that_changed_very_much_leaves_its_span(tmp_path: Path) -> None:
    origins = FileOrigins()
    span = await origins.begin_span(tmp_path, WEB)
    for number in range(MAX_CHANGED + 2):
        (tmp_path / str(number)).touch()
    await origins.end_span(span)
    assert await origins.sources((tmp_path / "7",)) == (f"the file {tmp_path}", "example.org")


async def test_too_many_marks_make_everything_untrusted(tmp_path: Path) -> None:
    origins = FileOrigins()
    origins._marks = {(str(n), 0): Mark(path=str(n), sources=()) for n in range(MAX_MARKS)}
    assert await origins.sources((tmp_path,)) == (UNKNOWN,)


async def test_marks_survive_a_restart_and_a_crash_ends_a_span(tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    odd = tmp_path / os.fsdecode(b"a\xff\n.txt")
    odd.write_text("text")
    first = FileOrigins(memory.origins)
    await first.mark(odd, ("a\ud800",))
    span = await first.begin_span(tmp_path / "w", WEB)
    second = FileOrigins(memory.origins, clock=lambda: span.began_at_ns + 5)
    await second.load()
    assert await second.sources((odd,)) == (f"the file {tmp_path}/a‹U+DCFF›‹U+000A›.txt", "a�")
    kept = {mark.path: mark for mark in await memory.origins.load()}
    assert kept[span.path].ended_at_ns == span.began_at_ns + 5
    assert kept[str(odd)].ended_at_ns == FOREVER_NS
    await first.end_span(span)
    assert {mark.path for mark in await memory.origins.load()} == {str(odd)}
    await memory.close()


@pytest.mark.parametrize(
    ("pattern", "meant", "others"),
    [
        ("*.eml", ["/w/a.eml", "/w/sub/b.eml", "/w/x.eml/inside"], ["/w/a.eml2", "/w/eml"]),
        ("downloads", ["/w/downloads", "/w/downloads/a/b"], ["/w/my-downloads", "/w/downloads2"]),
        ("in/*/raw", ["/w/in/a/raw", "/w/in/b/raw/x"], ["/w/in/raw", "/w/in/a/b/raw"]),
        ("in/**/raw", ["/w/in/raw", "/w/in/a/b/raw"], ["/w/ink/raw"]),
        ("/srv/inbox/", ["/srv/inbox", "/srv/inbox/a"], ["/w/srv/inbox", "/srv/inbox2"]),
        ("~/in", ["/home/ada/in/a"], ["/w/in", "/home/ada/inn"]),
        ("a?.(x)", ["/w/ab.(x)"], ["/w/a/.(x)", "/w/abx"]),
        ("x", ["/w/x\n/y", "/w\n/x"], ["/w/x\n"]),
    ],
)
def test_patterns_mean_names_and_all_below(
    monkeypatch: pytest.MonkeyPatch, pattern: str, meant: list[str], others: list[str]
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    patterns = PathPatterns((pattern,))
    if pattern == "x":
        meant = ["/w/x/y"]
    assert [path for path in meant if not patterns.match(path)] == []
    assert [path for path in others if patterns.match(path)] == []


def test_no_patterns_mean_nothing() -> None:
    assert not PathPatterns(())
    assert not PathPatterns(("", "/", " "))
    assert not PathPatterns(()).match("/w/a")


async def test_a_pattern_is_looked_for_below_a_folder(tmp_path: Path) -> None:
    origins = FileOrigins(patterns=lambda: ("*.eml",))
    assert await origins.sources((tmp_path,)) == ()
    file = put(tmp_path, "sub/a.eml")
    assert await origins.sources((tmp_path,)) == (f"the untrusted path {file}",)
    assert await origins.sources((file,)) == (f"the untrusted path {file}",)
    assert PathPatterns(("*.eml",)).first_below(tmp_path, limit=0) == str(tmp_path)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("cat a.txt", ["a.txt"]),
        ("cat a.txt | grep -n x b.txt", ["a.txt", "b.txt"]),
        ("sort < a.txt", ["a.txt"]),
        ("head -n 3 'a.txt'", ["a.txt"]),
        ("wc --total=a.txt", ["a.txt"]),
        ("tail -va.txt", ["a.txt"]),
        ("cut -d: -f1 sub/../a.txt", ["sub/../a.txt"]),
        ("date; pwd; echo hello", []),
        ("cat sub", ["sub"]),
    ],
)
def test_files_that_a_plain_command_names_are_told(
    tmp_path: Path, command: str, names: list[str]
) -> None:
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        put(tmp_path, name)
    assert files_read(command, tmp_path) == tuple(tmp_path / name for name in names)


@pytest.mark.parametrize(
    "command",
    [
        "cat *", "cat a*", "cat $x", "cat $(ls)", "ls", "find .", "rg x", "grep -r x",
        "grep -Hnr x .", "grep --recur x", "grep -d recurse x", "wc --files0-from=list",
        "file -f list", "python x.py", "cd sub; cat c.txt", "xargs cat < list", "./cat a.txt",
        "/tmp/cat a.txt", "sh -c 'cat a.txt'", "A=b cat a.txt", "cat <<x\nx", "git log", "(", "\0",
        "for f in *; do cat $f; done", "cat {a,b}*", "env cat a.txt", "sed -n p a.txt",
        "diff -r a b c $y",
    ],
)  # fmt: skip
def test_what_else_a_command_reads_cannot_be_told(tmp_path: Path, command: str) -> None:
    assert files_read(command, tmp_path) is None
