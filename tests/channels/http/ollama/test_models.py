"""Models over Ollama's door: which are there, what they are, loading and unloading them."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from clawd.channels.http.model_api import Caller
from clawd.engine.gguf import read_head
from clawd.security.principal import Principal
from tests.channels.http.rig import Served, served
from tests.channels.http.told import raw
from tests.support.gguf_models import EMBEDDED, write_random_gguf

LOCAL = '[providers.models.here]\nkind = "local"\n'


@asynccontextmanager
async def with_models(folder: Path) -> AsyncIterator[Served]:
    """Serve a daemon with the embedded model and a copy of it in its folder."""
    models = folder / "home" / "models"
    models.mkdir(parents=True, mode=0o700)
    (folder / "home").chmod(0o700)
    shutil.copy(EMBEDDED, models / "Small.gguf")
    async with served(folder, tables=LOCAL) as door:
        yield door


def names_of(value: Any) -> list[str]:
    return [model["name"] for model in value["models"]]


async def test_tags_list_what_can_be_asked_for(tmp_path: Path) -> None:
    async with with_models(tmp_path) as door:
        _, told = await door.get("/api/tags")
        for name in names_of(told):
            assert (await door.post("/api/show", {"model": name}))[0] == 200, name
    models = {model["name"]: model for model in told["models"]}
    assert {"clawd", "embedded", "Small"} <= set(models)
    small = models["Small"]
    assert small["model"] == "Small"
    assert small["size"] == EMBEDDED.stat().st_size
    details = small["details"]
    assert (details["format"], details["family"], details["families"]) == (
        "gguf",
        "llama",
        ["llama"],
    )
    assert details["parameter_size"][-1] in "KMB"
    assert details["quantization_level"] == read_head(EMBEDDED).quantization != ""
    assert len(small["digest"]) == 64
    assert small["digest"] != models["embedded"]["digest"]
    assert small["modified_at"].endswith("Z")


async def test_what_is_told_of_a_model_is_that_of_its_file_as_it_is_now(tmp_path: Path) -> None:
    async with with_models(tmp_path) as door:
        path = tmp_path / "home" / "models" / "Small.gguf"
        (before,) = [each for each in (await tags(door)) if each["name"] == "Small"]
        write_random_gguf(path, n_embd=64)
        (after,) = [each for each in (await tags(door)) if each["name"] == "Small"]
        path.write_bytes(b"GGUF but no more")
        (broken,) = [each for each in (await tags(door)) if each["name"] == "Small"]
    sizes = [each["details"]["parameter_size"] for each in (before, after, broken)]
    assert sizes[2] == "" and len(set(sizes)) == 3


async def tags(door: Served) -> list[dict[str, Any]]:
    """Return the models as /api/tags has them."""
    found: list[dict[str, Any]] = (await door.get("/api/tags"))[1]["models"]
    return found


async def test_show_says_what_a_model_is_under_either_key(tmp_path: Path) -> None:
    async with with_models(tmp_path) as door:
        status, told = await door.post("/api/show", {"model": "embedded"})
        again = await raw(door.url, "/api/show", {"name": "embedded:latest"})
    assert status == 200
    assert again.json() == told
    architecture = told["model_info"]["general.architecture"]
    assert architecture
    assert told["model_info"][f"{architecture}.context_length"] >= 1024
    assert told["model_info"]["general.parameter_count"] > 0
    assert "completion" in told["capabilities"]
    assert "tools" in told["capabilities"]
    assert "messages" in told["template"]
    assert told["details"]["family"] == architecture
    assert told["details"]["parameter_size"][-1] in "KMB"


async def test_a_request_without_a_prompt_loads_a_model_or_unloads_it(tmp_path: Path) -> None:
    async with with_models(tmp_path) as door:
        assert names_of((await door.get("/api/ps"))[1]) == []
        _, loaded = await door.post("/api/chat", {"model": "embedded", "messages": []})
        assert loaded["message"] == {"role": "assistant", "content": ""}
        assert (loaded["model"], loaded["done"]) == ("embedded", True)
        assert loaded["done_reason"] == "load"
        _, told = await door.get("/api/ps")
        assert names_of(told) == ["embedded"]
        assert told["models"][0]["context_length"] > 0
        # Under the same name as in the list of all.
        tags = (await door.get("/api/tags"))[1]["models"]
        (digest,) = [model["digest"] for model in tags if model["name"] == "embedded"]
        assert told["models"][0]["digest"] == digest
        for _ in range(2):
            body = {"model": "embedded", "keep_alive": 0}
            _, gone = await door.post("/api/generate", body)
            assert (gone["response"], gone["done_reason"]) == ("", "unload")
            assert names_of((await door.get("/api/ps"))[1]) == []


async def test_a_model_that_is_deleted_by_its_tag_is_unloaded_too(tmp_path: Path) -> None:
    async with with_models(tmp_path) as door:
        shutil.copy(EMBEDDED, tmp_path / "home" / "models" / "small-1b.gguf")
        for name in ("small:1b", "Small:latest"):
            loaded = await raw(door.url, "/api/chat", {"model": name, "messages": []})
            assert loaded.json()["done_reason"] == "load"
        assert set(names_of((await door.get("/api/ps"))[1])) == {"small-1b", "Small"}
        for name in ("small:1b", "Small:latest"):
            gone = await raw(door.url, "/api/delete", {"name": name}, method="DELETE")
            assert (gone.status, gone.body) == (200, b"")
        assert names_of((await door.get("/api/ps"))[1]) == []
        assert list((tmp_path / "home" / "models").glob("*.gguf")) == []


async def test_h8_the_default_model_has_one_name_loaded_or_not(tmp_path: Path) -> None:
    async with with_models(tmp_path) as door:
        config = tmp_path / "home" / "config.toml"
        config.write_text(config.read_text().replace('provider = "mock"', 'provider = "local"'))
        await door.inside.daemon.reload()
        await door.post("/api/chat", {"model": "clawd", "messages": []})
        first, *_ = (await door.get("/api/tags"))[1]["models"]
        (loaded,) = (await door.get("/api/ps"))[1]["models"]
        assert (loaded["name"], loaded["digest"]) == ("clawd", first["digest"])


async def test_loading_what_another_server_runs_leaves_it_to_that(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        _, told = await door.post("/api/generate", {"model": "mock", "prompt": ""})
        assert (told["done_reason"], told["response"]) == ("load", "")


async def test_a_user_who_is_no_admin_loads_but_does_not_unload(tmp_path: Path) -> None:
    async with with_models(tmp_path) as door:
        principal = Principal(uid=4321, gid=4321, pid=1, role="user")
        door.caller = msgspec.structs.replace(door.caller, principal=principal)
        assert isinstance(door.caller, Caller)
        assert (await door.post("/api/generate", {"model": "embedded"}))[0] == 200
        status, told = await door.post("/api/generate", {"model": "embedded", "keep_alive": 0})
        assert (status, "admin" in told["error"]) == (403, True)
        assert names_of((await door.get("/api/ps"))[1]) == ["embedded"]
