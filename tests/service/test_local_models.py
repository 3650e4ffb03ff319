"""What the engine is told of a model by the configuration in force."""

from pathlib import Path

from clawd.config.load import load
from clawd.engine.models import EMBEDDED
from clawd.service.state import LocalModels


def test_the_prefix_cache_is_told_its_budgets_and_its_folder(tmp_path: Path) -> None:
    loaded = load(
        environ={"CLAWD_HOME": str(tmp_path), "HOME": str(tmp_path)},
        overrides={"engine.prefix_cache_ram_mb": 64, "engine.prefix_cache_disk_mb": 2048},
    )
    config = LocalModels(loaded).find(EMBEDDED).config
    assert (config.prefix_cache_ram_mb, config.prefix_cache_disk_mb) == (64, 2048)
    assert config.prefix_cache_folder == str(tmp_path / "cache" / "prefix")


def test_the_disk_is_left_alone_unless_it_is_asked_for(tmp_path: Path) -> None:
    loaded = load(environ={"CLAWD_HOME": str(tmp_path), "HOME": str(tmp_path)})
    config = LocalModels(loaded).find(EMBEDDED).config
    assert config.prefix_cache_disk_mb == 0
    assert config.prefix_cache_ram_mb == 1024
