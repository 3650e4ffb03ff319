"""A family of models: how its chat template is recognised, and what makes its parser."""

from collections.abc import Callable
from typing import NamedTuple

from clawd.providers.toolcalls.base import ParserFactory


class Family(NamedTuple):
    """A family's name, whether a chat template is one of its own, and its parser's factory."""

    name: str
    matches: Callable[[str], bool]
    make: ParserFactory
