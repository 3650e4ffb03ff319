"""Which model a name of a client means; and that no other answers in its place."""

from pathlib import Path

import msgspec
import pytest

from clawd.channels.http.app import Gateway
from clawd.channels.http.catalogue import find, listed
from clawd.errors import ModelNotFoundError
from clawd.service.http import gateway_of
from tests.support.inprocess import daemon_in
from tests.support.rows import each_row

TABLES = """
[providers.models.second]
kind = "mock"
[providers.models.cloud]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
model = "big-one"
"""


async def meant(gateway: Gateway, name: str) -> tuple[str, str, str]:
    choice = await find(gateway, name)
    return choice.name, choice.provider.name(), choice.model


@each_row(
    ("name", "expected"),
    [
        ("", ("mock", "mock", "")),
        ("clawd", ("clawd", "mock", "")),
        ("clawd:latest", ("clawd:latest", "mock", "")),
        ("mock", ("mock", "mock", "")),
        ("second", ("second", "second", "")),
        ("second:latest", ("second:latest", "second", "")),
        ("second/any/name:7b", ("second/any/name:7b", "second", "any/name:7b")),
        ("cloud", ("cloud", "cloud", "")),
        ("big-one", ("big-one", "cloud", "")),
        ("cloud/other", ("cloud/other", "cloud", "other")),
        ("embedded", ("embedded", "local", "embedded")),
        ("Embedded:latest", ("Embedded:latest", "local", "embedded")),
        ("local/embedded", ("local/embedded", "local", "embedded")),
        ("tiny", ("tiny", "local", "tiny")),
        ("tiny.gguf", ("tiny.gguf", "local", "tiny")),
        ("TINY:latest", ("TINY:latest", "local", "tiny")),
    ],
)
async def test_a_name_means_one_model(
    tmp_path: Path, name: str, expected: tuple[str, str, str]
) -> None:
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True, mode=0o700)
    (models / "tiny.gguf").write_bytes(b"GGUF")
    (tmp_path / "home").chmod(0o700)
    async with daemon_in(tmp_path, TABLES) as inside:
        gateway = gateway_of(inside.daemon)
        assert await meant(gateway, name) == expected
        path = str(models / "tiny.gguf")
        assert await meant(gateway, path) == (path, "local", "tiny")


@each_row(
    "name",
    [
        "gpt-4o",
        "local/none",
        "local/",
        "/etc/passwd",
        "local//etc/passwd",
        "embedded/x",
        "clawd/x",
        "\0",
    ],
)
async def test_a_name_of_nothing_is_refused_with_those_that_are_there(
    tmp_path: Path, name: str
) -> None:
    async with daemon_in(tmp_path, TABLES) as inside:
        with pytest.raises(ModelNotFoundError) as caught:
            await find(gateway_of(inside.daemon), name)
        for known in ("clawd", "embedded", "second", "cloud"):
            assert known in caught.value.message


async def test_a_file_that_lies_elsewhere_is_no_model(tmp_path: Path) -> None:
    stray = tmp_path / "stray.gguf"
    stray.write_bytes(b"GGUF")
    async with daemon_in(tmp_path, TABLES) as inside:
        for name in (str(stray), f"local/{stray}", "../stray", "local/../stray.gguf"):
            with pytest.raises(ModelNotFoundError):
                await find(gateway_of(inside.daemon), name)


async def test_every_listed_name_can_be_asked_for(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, TABLES) as inside:
        gateway = gateway_of(inside.daemon)
        models = await listed(gateway)
        assert [model.name for model in models] == [
            "clawd", "embedded", "cloud", "second",
        ]  # fmt: skip
        assert [model.name for model in models if model.is_default] == ["clawd"]
        (embedded,) = [model for model in models if model.is_local]
        assert embedded.size_bytes > 0 and embedded.context_size >= 0
        for model in models:
            assert (await find(gateway, model.name)).provider.name() == model.provider


async def test_h8_a_model_has_one_name_in_a_list_and_its_others_are_answered(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path, TABLES) as inside:
        gateway = gateway_of(inside.daemon)
        runtime = msgspec.structs.replace(gateway.settings(), default_provider="local")
        told = msgspec.structs.replace(gateway, settings=lambda: runtime)
        models = await listed(told)
        assert [model.name for model in models] == ["clawd", "cloud", "mock", "second"]
        assert models[0].is_local and models[0].size_bytes > 0
        assert models[0].stands_for == "embedded"
        with pytest.raises(ModelNotFoundError, match=r"there are: clawd \(embedded\), cloud"):
            await find(told, "gpt-4o")
        for name in ("clawd", "embedded", "local"):
            assert (await find(told, name)).provider.name() == "local"
