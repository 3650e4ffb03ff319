"""Finding a model by its name."""

from pathlib import Path

import pytest

from clawd.engine.embedded import embedded_model_path
from clawd.engine.models import ModelFolder, size_bytes
from clawd.errors import ModelNotFoundError
from tests.support.rows import each_row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "Qwen3-4B.gguf",
        "llama.GGUF",
        "notes.txt",
        "big-00001-of-00002.gguf",
        "big-00002-of-00002.gguf",
        "twin.gguf",
        "TWIN.gguf",
    ):
        (tmp_path / name).touch()
    (tmp_path / "folder.gguf").mkdir()
    return tmp_path


@each_row(
    ("name", "file"),
    [
        ("Qwen3-4B", "Qwen3-4B.gguf"),
        ("qwen3-4b", "Qwen3-4B.gguf"),
        ("QWEN3-4B.GGUF", "Qwen3-4B.gguf"),
        ("llama", "llama.GGUF"),
        ("big", "big-00001-of-00002.gguf"),
        ("twin", "twin.gguf"),
        ("TWIN", "TWIN.gguf"),
    ],
    fresh=["folder"],
)
def test_a_name_finds_its_file(folder: Path, name: str, file: str) -> None:
    assert ModelFolder(folder).find(name) == folder / file


@each_row(
    "name",
    [
        "Qwen3",
        "Qwen3-4B-Instruct",
        "notes",
        "notes.txt",
        "folder",
        "Twin",
        "",
        "../x",
        "/etc/passwd",
    ],
    fresh=["folder"],
)
def test_no_other_model_answers_for_a_name(folder: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        ModelFolder(folder).find(name)
    for there in ("embedded", "Qwen3-4B", "llama", "big"):
        assert there in caught.value.message
    assert "notes" not in caught.value.message.partition("there are")[2]


def test_an_absolute_path_to_a_model_is_taken(folder: Path) -> None:
    path = folder / "Qwen3-4B.gguf"
    assert ModelFolder(folder / "empty").find(str(path)) == path
    with pytest.raises(ModelNotFoundError):
        ModelFolder(folder).find(str(folder / "absent.gguf"))


def test_the_embedded_model_is_always_there(tmp_path: Path) -> None:
    models = ModelFolder(tmp_path / "absent")
    assert models.find("embedded") == embedded_model_path()
    assert models.names() == ["embedded"]


def test_every_name_has_its_path_and_every_path_its_one_name(folder: Path) -> None:
    models = ModelFolder(folder)
    paths = models.paths()
    assert list(paths) == models.names()
    assert {models.name_of(models.find(name)) for name in ("Big.gguf", "big")} == {"big"}
    assert models.name_of(models.find(str(folder / "Qwen3-4B.gguf"))) == "Qwen3-4B"
    assert models.name_of(models.find("EMBEDDED")) == "embedded"
    assert models.name_of(folder.parent / "elsewhere.gguf") == str(folder.parent / "elsewhere.gguf")


def test_the_size_of_a_split_model_is_that_of_all_parts_that_are_there(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"big-{number:05}-of-00003.gguf").write_bytes(b"x" * number)
    (tmp_path / "one.gguf").write_bytes(b"12345")
    assert size_bytes(tmp_path / "big-00001-of-00003.gguf") == 3
    assert size_bytes(tmp_path / "one.gguf") == 5
