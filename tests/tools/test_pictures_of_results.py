"""Pictures that tools give: the model sees them, and the receipt's result has their hashes."""

import hashlib
import re
from pathlib import Path

import msgspec
import pytest

from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.files import FileReadTool
from clawd.wire.pictures import MAX_PICTURES, looks_like_picture
from tests.support.dispatching import Act, Probe, bench_in
from tests.support.pictures import png
from tests.support.rows import each_row

MARK = re.compile(r"\[picture: image/png, (\d+x\d+), sha256 ([0-9a-f]{64})\]")


def giving(*images: bytes, error: str = "") -> Act:
    async def act(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        result = failed(error) if error else succeeded("taken")
        return msgspec.structs.replace(result, images=images)

    return act


@pytest.mark.sandbox
async def test_a_result_names_them_and_its_receipt_hashes_that(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        outcome = await bench.called(Probe(act=giving(png(3, 2), png(5, 4))))
        assert [(each.width, each.height) for each in outcome.pictures] == [(3, 2), (5, 4)]
        first, *lines = outcome.text.split("\n")
        assert first == "taken"
        told = [MARK.fullmatch(line) for line in lines]
        assert [found and found[2] for found in told] == [
            hashlib.sha256(each.data).hexdigest() for each in outcome.pictures
        ]
        _, result = await bench.stored(await bench.only_receipt())
        assert result == outcome.text.encode()


@pytest.mark.sandbox
async def test_one_that_is_none_is_told_of_and_the_others_are_shown(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        outcome = await bench.called(Probe(act=giving(b"\x89PNG\r\n\x1a\nbroken", png(3, 2))))
        assert len(outcome.pictures) == 1
        assert "[picture 1 is not taken: it cannot be decoded" in outcome.text or (
            "[picture 1 is not taken: it is no PNG" in outcome.text
        )


@pytest.mark.sandbox
async def test_a_failed_call_and_one_with_too_many(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        many = (png(1, 1),) * (MAX_PICTURES + 2)
        outcome = await bench.called(Probe(act=giving(*many, error="half of it")))
        assert len(outcome.pictures) == MAX_PICTURES
        assert outcome.text.startswith("error: half of it\n[picture: ")
        assert outcome.text.endswith("[2 pictures were left out]")


@pytest.mark.sandbox
async def test_reading_a_picture_shows_it(tmp_path: Path) -> None:
    async with bench_in(tmp_path) as bench:
        (tmp_path / "shot.txt").write_bytes(png(3, 2))  # its name says nothing
        sandbox = Sandbox(SandboxSettings(home=tmp_path / "home"))
        tool = FileReadTool(BuiltinDeps(policy=bench.policy, home=None, sandbox=sandbox))
        outcome = await bench.called(tool, '{"path":"shot.txt"}')
        assert outcome.text.startswith(f"shot.txt is a picture of {len(png(3, 2))} bytes\n[")
        (seen,) = outcome.pictures
        assert (seen.width, seen.height) == (3, 2)


@each_row(
    ("head", "expected"),
    [
        (png(1, 1)[:12], True),
        (b"\xff\xd8\xff\xe0", True),
        (b"GIF89a", True),
        (b"RIFF\0\0\0\0WEBPVP8 ", True),
        (b"RIFF\0\0\0\0WAVEfmt ", False),
        (b"\x89PNG", False),
        (b"<svg>", False),
        (b"", False),
    ],
)
def test_a_picture_is_known_by_its_beginning(head: bytes, expected: bool) -> None:
    assert looks_like_picture(head) is expected
