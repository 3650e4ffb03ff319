"""The engine's settings for one model: the `[engine]` section under its `[model."pattern"]`."""

from collections.abc import Mapping
from typing import Any

from clawd.config.engine import EngineSection
from clawd.config.load import Loaded
from clawd.config.schema import Config

PRESET = "preset"


def matching_pattern(config: Config, model_file: str) -> str | None:
    """Return the longest pattern that the model's file name contains, in any case."""
    name = model_file.rpartition("/")[2].lower()
    matching = [pattern for pattern in config.model if pattern.lower() in name]
    return max(matching, key=len, default=None)


def engine_settings(
    loaded: Loaded, model_file: str, presets: Mapping[str, Mapping[str, Any]]
) -> EngineSection:
    """Return the engine's settings for a model file.

    Command line and environment win over the pattern, the pattern over the section. A preset
    fills in its values below the keys that stand beside it, and above everything further away;
    an empty one takes away what a preset further away filled in.
    """
    engine = loaded.config.engine
    inside: dict[str, Any] = {}
    outside: dict[str, Any] = {}
    for name, value in engine:
        source = loaded.source_of(f"engine.{name}")
        if source == "command line" or source.startswith("environment "):
            outside[name] = value
        elif source != "default":
            inside[name] = value
    pattern = matching_pattern(loaded.config, model_file)
    profile = loaded.config.model[pattern] if pattern is not None else ()
    shape: Mapping[str, Any] = {}
    values: dict[str, Any] = {}
    for layer in (inside, {name: value for name, value in profile if value is not None}, outside):
        if PRESET in layer:
            shape = presets.get(layer[PRESET], {})
            values = {name: value for name, value in values.items() if name not in shape}
        values |= layer
    return engine.model_copy(update={**shape, **values})
