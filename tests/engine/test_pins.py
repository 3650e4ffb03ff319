"""A model's file that is not the one whose digest was noted is not loaded."""

import hashlib
import os
from pathlib import Path

import pytest

from clawd.engine.models import check_pins, pin_state, read_pin
from clawd.engine.protocol import ModelConfig
from clawd.errors import CancelledByUserError, ModelLoadError
from clawd.wire.models import ModelPin, encode_pin, pin_of, seen
from tests.support.engines import fake_engine, text_of

DATA = b"GGUF of a model"
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "good.gguf"
    path.write_bytes(DATA)
    pin(path)
    return path


def pin(path: Path, sha256: str = SHA256) -> None:
    pin_of(path).write_bytes(encode_pin(ModelPin(sha256=sha256, source="hf:org/repo")))


def change(path: Path) -> None:
    """Change one byte as nobody sees by size and time of change."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"L")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_that_was_found_right_is_not_read_again_until_it_looks_otherwise(
    model: Path,
) -> None:
    check_pins(model, "good")
    noted = read_pin(model)
    assert noted is not None
    assert noted.seen == seen(model.stat())
    # What was noted of its looks counts: with another digest it is still taken for right.
    pin_of(model).write_bytes(encode_pin(ModelPin(sha256="0" * 64, seen=noted.seen)))
    check_pins(model, "good")
    change(model)
    with pytest.raises(ModelLoadError):
        check_pins(model, "good")


@pytest.mark.parametrize("way", ["a byte", "another file", "another link", "cut off"])
def test_a_changed_file_is_refused_with_both_digests_and_what_to_do(model: Path, way: str) -> None:
    check_pins(model, "good")
    if way == "a byte":
        change(model)
    elif way == "cut off":
        os.truncate(model, 3)
    else:
        other = model.with_name("other")
        other.write_bytes(b"GGUF of another")
        model.unlink()
        if way == "another link":
            model.symlink_to(other)
        else:
            other.replace(model)
    with pytest.raises(ModelLoadError) as caught:
        check_pins(model, "good")
    error = caught.value
    assert f"pinned is {SHA256}" in error.message
    assert hashlib.sha256(model.read_bytes()).hexdigest() in error.message
    assert "clawctl model accept good" in error.hint
    assert "clawctl model pull hf:org/repo --force" in error.hint
    state, pinned = pin_state(model)
    assert (state, pinned.sha256 if pinned else "") == ("changed", SHA256)


def test_of_a_split_model_every_part_counts(tmp_path: Path) -> None:
    parts = [tmp_path / f"big-{number:05}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(DATA)
        pin(part)
    assert pin_state(parts[0])[0] == "right"
    change(parts[1])
    assert pin_state(parts[0])[0] == "changed"


@pytest.mark.parametrize(
    "written", [b"", b"{}", b'{"sha256":"ab"}', b'{"sha256":"' + b"Z" * 64 + b'"}', b"\xff" * 9]
)
def test_a_pin_that_cannot_be_read_is_no_permission(model: Path, written: bytes) -> None:
    pin_of(model).write_bytes(written)
    with pytest.raises(ModelLoadError, match="cannot be read"):
        check_pins(model, "good")


def test_without_a_pin_nothing_is_read(model: Path) -> None:
    pin_of(model).unlink()
    model.write_bytes(b"GGUF, and nobody noted of what")
    check_pins(model, "good")
    assert pin_state(model)[0] == "none"


def test_an_engine_that_ends_does_not_wait_for_a_large_file(model: Path) -> None:
    with pytest.raises(CancelledByUserError):
        check_pins(model, "good", lambda: True)


async def test_the_engine_answers_from_the_pinned_file_and_not_from_a_changed_one(
    model: Path, tmp_path: Path
) -> None:
    config = ModelConfig(path=str(model), alias="good")
    async with fake_engine(tmp_path) as (engine, journal):
        assert await text_of(engine, "say x", config) == "x"
        model.write_bytes(DATA[:-1] + b"L")
        with pytest.raises(ModelLoadError, match="changed since it was put there"):
            await text_of(engine, "say x", config)
        assert len(journal.having("start")) == 1
        pin(model, hashlib.sha256(model.read_bytes()).hexdigest())
        assert await text_of(engine, "say x", config) == "x"


async def test_a_changed_projector_is_refused_by_its_own_name(model: Path, tmp_path: Path) -> None:
    eyes = model.with_name("mmproj-good.gguf")
    eyes.write_bytes(DATA)
    pin(eyes)
    config = ModelConfig(path=str(model), mmproj=str(eyes), alias="good")
    async with fake_engine(tmp_path) as (engine, journal):
        eyes.write_bytes(DATA[:-1] + b"L")
        with pytest.raises(ModelLoadError, match="of model mmproj-good changed") as caught:
            await text_of(engine, "say x", config)
        assert "clawctl model accept mmproj-good" in caught.value.hint
        assert not journal.having("start")
        pin(eyes, hashlib.sha256(eyes.read_bytes()).hexdigest())
        assert await text_of(engine, "say x", config) == "x"
