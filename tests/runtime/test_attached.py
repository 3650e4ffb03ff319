"""What a message brings along that nobody vouches for: it taints before the model sees it."""

from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from tests.runtime.inboxes import House
from tests.runtime.models import PlannedModel, says
from tests.support.dispatching import Bench
from tests.support.rows import each_row


def house_of(bench: Bench) -> House:
    house = House(bench)
    house.model = PlannedModel(says("ok"), name="mock")
    return house


async def test_text_that_is_named_untrusted_taints(bench: Bench) -> None:
    house = house_of(bench)
    done = await house.say("why?", untrusted=("terminal\x1b output" + "x" * 5_000,))
    (source,) = bench.taint.sources(done.conversation_id)
    assert source.startswith("terminal")
    assert "\x1b" not in source
    assert len(source) <= 200


async def test_a_file_in_a_message_taints_as_if_it_were_read(bench: Bench) -> None:
    house = house_of(bench)
    workspace = bench.workspace.resolve()
    for name in ("mine.md", "theirs.md"):
        (workspace / name).write_text("text")
    await bench.taint.files.mark(workspace / "theirs.md", ("web_fetch evil.example",))
    bench.taint.files.release(workspace / "theirs.md")
    fine = await house.say("see", files=("mine.md",))
    assert bench.taint.sources(fine.conversation_id) == ()
    done = await house.say("see", files=("mine.md", "theirs.md"))
    assert "web_fetch evil.example" in bench.taint.sources(done.conversation_id)


@each_row("name", ["../x", "/etc/passwd", "out/passwd", "a\0b"], fresh=["bench"])
async def test_a_file_of_another_place_is_none_of_a_message(bench: Bench, name: str) -> None:
    house = house_of(bench)
    Path(bench.workspace, "out").symlink_to("/etc")
    with pytest.raises(InvalidRequestError):
        await house.say("see", files=(name,))


async def test_too_many_files_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequestError):
        await house_of(bench).say("see", files=("a",) * 21)
