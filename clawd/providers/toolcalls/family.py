"""A family of models: how its chat template is known, and what parses its answers."""

from collections.abc import Callable
from typing import NamedTuple

from clawd.providers.toolcalls.base import ParserFactory


class Family(NamedTuple):
    """One row of the table of families; `matches` is asked about a chat template's text."""

    name: str
    matches: Callable[[str], bool]
    make: ParserFactory
