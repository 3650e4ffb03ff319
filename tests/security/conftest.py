"""What the tests of a malicious model share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clawd.security import network
from tests.support.malicious_world import SECRETS, World, world_in


@pytest.fixture
def autonomy() -> str:
    return "supervised"


@pytest.fixture
async def world(
    autonomy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setenv("PROJECT_TOKEN", SECRETS["env"])
    async with world_in(tmp_path, autonomy) as made:
        watch_names(made, monkeypatch)
        yield made


def watch_names(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Note which names are looked up; asking a name server is sending it the name."""

    async def resolve(host: str, port: int) -> list[str]:
        world.resolved.append(host)
        if host != "127.0.0.1":
            raise OSError("no name server in tests")
        return [host]

    monkeypatch.setattr(network, "system_resolve", resolve)
