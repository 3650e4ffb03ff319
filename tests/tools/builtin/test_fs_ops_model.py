"""Batches against a plain model of files: a dictionary of texts, changed the plain way."""

import asyncio
import itertools
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.memory.changes import ChangeLimits
from clawd.memory.store import Memory
from tests.tools.builtin.conftest import Bench

Files = dict[str, str]
Op = dict[str, Any]

WORDS = ("alpha", "beta", "gamma", "delta")
NAMES = ("a", "b", "d/c")
LINES = st.lists(st.sampled_from([*WORDS, "alpha beta", "", "é"]), max_size=6)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))
PATHS = st.sampled_from([*NAMES, "./a", "d/../b"])
EDITS = st.one_of(
    st.builds(
        lambda path, old, new: {"op": "edit", "path": path, "old_text": old, "new_text": new},
        PATHS,
        st.sampled_from(WORDS),
        TEXTS,
    ),
    st.builds(
        lambda path, first, more, new: {
            "op": "edit", "path": path, "start_line": first, "end_line": first + more,
            "new_text": new,
        },
        PATHS,
        st.integers(1, 7),
        st.integers(-1, 2),
        TEXTS,
    ),
)  # fmt: skip
OTHERS = st.one_of(
    st.builds(
        lambda verb, path, content: {"op": verb, "path": path, "content": content},
        st.sampled_from(["write", "append"]),
        PATHS,
        TEXTS,
    ),
    st.builds(lambda path: {"op": "read", "path": path}, PATHS),
)
BATCHES = st.lists(st.one_of(EDITS, EDITS, OTHERS), min_size=1, max_size=8)


class Expected(NamedTuple):
    """What the model says: the files after, and what came of each operation, by number."""

    files: Files
    failed: set[int]
    not_done: set[int]
    reads: dict[int, str]


def name_of(path: str) -> str:
    return {"./a": "a", "d/../b": "b"}.get(path, path)


def lines_of(text: str) -> list[str]:
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []


def clash(text: str | None, edits: list[Op]) -> bool:
    """Whether two edits change the same part: of lines always, of a text where it stands once."""
    taken: dict[int, int] = {}
    between: set[int] = set()
    for number, edit in enumerate(edits):
        if "old_text" in edit:
            continue
        wanted = range(edit["start_line"], edit["end_line"] + 1)
        between |= {edit["start_line"]} if not wanted else set()
        for line in wanted:
            if taken.setdefault(line, number) != number:
                return True
    inner = {n for n in taken if taken.get(n - 1) == taken[n]}
    if between & inner:
        return True
    if text is None or any(problem(text, edit) for edit in edits):
        return False
    olds = [edit["old_text"] for edit in edits if "old_text" in edit]
    stand = [text[: text.index(old)].count("\n") + 1 for old in olds]
    return len(olds) > len(set(olds)) or any(line in taken for line in stand)


def problem(text: str, edit: Op) -> bool:
    if "old_text" in edit:
        return text.count(edit["old_text"]) != 1
    count, first, last = len(lines_of(text)), edit["start_line"], edit["end_line"]
    return not (1 <= first <= count + 1 and first - 1 <= last <= count)


def edited(text: str, edits: list[Op]) -> str:
    """Return the text with all edits, made from the top down with marks in place of pieces."""
    marks: dict[str, str] = {}
    marked = text
    for number, edit in enumerate(edits):
        if "old_text" in edit:
            marks[f"\0{number}\0"] = edit["new_text"]
            marked = marked.replace(edit["old_text"], f"\0{number}\0")
    lines, made, at = lines_of(marked), list[str](), 1
    by_line = [edit for edit in edits if "old_text" not in edit]
    while at <= len(lines) + 1:
        for edit in by_line:
            if (edit["start_line"], edit["end_line"]) == (at, at - 1):
                made += fresh(edit)
        here = [e for e in by_line if e["start_line"] == at and e["end_line"] >= at]
        if here:
            made += fresh(here[0])
            at = here[0]["end_line"] + 1
            continue
        made += lines[at - 1 : at]
        at += 1
    ends = not text or text.endswith("\n")
    whole = "\n".join(made) + ("\n" if ends and made else "")
    for mark, new in marks.items():
        whole = whole.replace(mark, new)
    return whole


def fresh(edit: Op) -> list[str]:
    new = edit["new_text"]
    return new.removesuffix("\n").split("\n") if new else []


def steps_of(ops: list[Op]) -> list[list[int]]:
    steps: list[list[int]] = []
    edits: dict[str, list[int]] = {}
    for number, each in enumerate(ops, 1):
        name = name_of(each["path"])
        if each["op"] == "edit" and name in edits:
            edits[name].append(number)
            continue
        steps.append([number])
        if each["op"] == "edit":
            edits[name] = steps[-1]
        if each["op"] == "write":
            edits.pop(name, None)
    return steps


def expected(before: Files, ops: list[Op], *, continues: bool) -> Expected | None:
    """Return what must come of a batch; None when it must be refused as a whole."""
    steps = steps_of(ops)
    for step in steps:
        if ops[step[0] - 1]["op"] == "edit":
            name = name_of(ops[step[0] - 1]["path"])
            earlier = (ops[n - 1] for n in range(1, step[0]))
            is_changed = any(name_of(e["path"]) == name and e["op"] != "read" for e in earlier)
            text = None if is_changed else before.get(name)
            if clash(text, [ops[n - 1] for n in step]):
                return None
    files, found = dict(before), Expected({}, set(), set(), {})
    for step in steps:
        if found.failed and not continues:
            found.not_done.update(step)
            continue
        blamed = done(files, [ops[n - 1] for n in step], step, found)
        if blamed:
            found.failed.add(blamed)
            found.not_done.update(set(step) - {blamed})
    return found._replace(files=files)


def done(files: Files, group: list[Op], step: list[int], found: Expected) -> int:
    """Do one step; return the number of the operation that failed, or 0."""
    first, name = group[0], name_of(group[0]["path"])
    if first["op"] == "write":
        files[name] = first["content"]
    elif first["op"] == "append":
        old, new = files.get(name, ""), first["content"]
        is_ended = not old or old.endswith("\n") or not new or new.startswith(("\n", "\r\n"))
        ending = "\r\n" if "\r\n" in old else "\n"
        files[name] = old + ("" if is_ended else ending) + new
    elif name not in files:
        return step[0]
    elif first["op"] == "read":
        lines = lines_of(files[name]) or ["(empty)"] * (not files[name])
        numbered = [f"{n}|{line}" if files[name] else line for n, line in enumerate(lines, 1)]
        found.reads[step[0]] = "\n".join(numbered)
    else:
        bad = next((n for n, e in zip(step, group, strict=True) if problem(files[name], e)), 0)
        if bad:
            return bad
        if clash(files[name], group):
            return -1
        changed = edited(files[name], group)
        if changed == files[name]:
            return step[0]
        files[name] = changed
    return 0


class World:
    """A workspace whose changes are kept, beside the model's files."""

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.calls = itertools.count(1)

    def files(self) -> Files:
        ws = self.bench.workspace
        every = (path for path in ws.rglob("*") if path.is_file())
        return {str(path.relative_to(ws)): path.read_bytes().decode() for path in every}

    async def check(self, before: Files, ops: list[Op], *, continues: bool) -> None:
        for name, text in before.items():
            self.bench.put(name, "").write_bytes(text.encode())
        context = msgspec.structs.replace(
            self.bench.context(), receipt_id=f"receipt-{next(self.calls)}"
        )
        given = {"operations": ops, "continue_on_error": continues}
        wanted = expected(before, ops, continues=continues)
        result = await self.bench.tool("fs_ops").invoke(given, context)
        if wanted is None:
            assert "change the same part of" in result.error, result
            assert self.files() == before
            return
        if -1 in wanted.failed:  # they overlap in what the batch itself wrote
            assert "FAILED: it overlaps" in result.error
        else:
            words = {"FAILED": wanted.failed, "NOT DONE": wanted.not_done}
            for word, numbers in words.items():
                seen = re.findall(rf"^(\d+)\. \S+ \S+: {word}: ", result.error, re.MULTILINE)
                assert set(map(int, seen)) == numbers, result.error
            assert result.success == (not wanted.failed and not wanted.not_done)
        assert self.files() == wanted.files
        for number, text in wanted.reads.items():
            shown = f"{number}. read {ops[number - 1]['path']}:\n{text}"
            assert shown in result.output, result.output
        if wanted.files != before:
            await self.undo(before, wanted.files)

    async def undo(self, before: Files, after: Files) -> None:
        for redo, then in ((False, before), (True, after), (False, before)):
            context = msgspec.structs.replace(
                self.bench.context(), receipt_id=f"receipt-{next(self.calls)}"
            )
            told = await self.bench.tool("undo").invoke({"redo": redo}, context)
            assert told.success, told.error
            assert self.files() == then


def test_batches_do_to_files_what_a_plain_model_says_and_undo_restores_all(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        memory = runner.run(Memory.open(tmp_path / "memory.sqlite"))
        log = runner.run(memory.changes(tmp_path / "undo", ChangeLimits))

        @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.dictionaries(st.sampled_from(NAMES), TEXTS), BATCHES, st.booleans())
        def check(before: Files, ops: list[Op], continues: bool) -> None:
            with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
                world = World(Path(folder))
                world.bench.changes["changes"] = log
                runner.run(world.check(before, ops, continues=continues))

        try:
            check()
        finally:
            runner.run(memory.close())
