"""The engine's settings for one model: the `[engine]` section under its `[model."pattern"]`."""

from clawd.config.engine import EngineSection
from clawd.config.load import Loaded
from clawd.config.schema import Config


def matching_pattern(config: Config, model_file: str) -> str | None:
    """Return the longest pattern that the model's file name contains, in any case."""
    name = model_file.rpartition("/")[2].lower()
    matching = [pattern for pattern in config.model if pattern.lower() in name]
    return max(matching, key=len, default=None)


def engine_settings(loaded: Loaded, model_file: str) -> EngineSection:
    """Return the engine's settings for a model file.

    Command line and environment win over the pattern, the pattern over the section.
    """
    engine = loaded.config.engine
    pattern = matching_pattern(loaded.config, model_file)
    if pattern is None:
        return engine
    overrides = {
        name: value
        for name, value in loaded.config.model[pattern]
        if value is not None and not _is_set_from_outside(loaded, f"engine.{name}")
    }
    return engine.model_copy(update=overrides)


def _is_set_from_outside(loaded: Loaded, key: str) -> bool:
    source = loaded.source_of(key)
    return source == "command line" or source.startswith("environment ")
