"""Reading the fields of an object in a manifest: each is checked, and each complaint has a line."""

import difflib
from typing import Any

from clawd.tools.external_json import Document, JsonFileError, Place


class Fields:
    """One object of a document.

    Args:
        document: the whole text.
        place: where the object stands in it.
        known: the names that it may have.

    Raises:
        JsonFileError: it is no object, or has a name that is not known.
    """

    def __init__(self, document: Document, place: Place, known: tuple[str, ...]) -> None:
        self._document = document
        self.place = place
        value: Any = document.value
        for part in place:
            value = value[part]
        if not isinstance(value, dict):
            raise self.error("", f"{_kind(value)} stands here, expected an object")
        self.value: dict[str, Any] = value
        for name in value:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                meant = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
                raise self.error(name, f"`{name}` is unknown; {meant}")

    @property
    def line(self) -> int:
        """Return the line on which the object begins."""
        return self._document.line_of(self.place)

    def error(self, name: str, reason: str) -> JsonFileError:
        """Return a complaint about a field; "" is the object itself."""
        place = (*self.place, name) if name else self.place
        return JsonFileError(self._document.line_of(place), reason)

    def text(
        self, name: str, *, at_least: int = 0, at_most: int, default: str | None = None
    ) -> str:
        """Return a text of so many characters; without a default it must be there."""
        value = self._given(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"`{name}` is {_kind(value)}, expected text in double quotes")
        if not at_least <= len(value) <= at_most:
            raise self.error(
                name, f"`{name}` has {len(value)} characters, expected {at_least} to {at_most}"
            )
        return value

    def number(self, name: str, *, at_least: int, at_most: int, default: int) -> int:
        """Return a whole number in these bounds."""
        value = self.value.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"`{name}` is {_kind(value)}, expected a whole number")
        if not at_least <= value <= at_most:
            raise self.error(
                name, f"`{name}` is {str(value)[:40]}, expected {at_least} to {at_most}"
            )
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.value.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"`{name}` is {_kind(value)}, expected true or false")
        return value

    def choice(self, name: str, choices: tuple[str, ...], *, default: str | None = None) -> str:
        """Return one of a few words."""
        value = self._given(name, default)
        if not isinstance(value, str) or value not in choices:
            shown = repr(value)[:60] if isinstance(value, str) else _kind(value)
            raise self.error(name, f"`{name}` is {shown}, expected one of {', '.join(choices)}")
        return value

    def items(self, name: str, *, at_most: int) -> list[Any]:
        """Return a list; an absent one is empty."""
        value = self.value.get(name, [])
        if not isinstance(value, list):
            raise self.error(name, f"`{name}` is {_kind(value)}, expected a list")
        if len(value) > at_most:
            raise self.error(name, f"`{name}` has {len(value)} entries, at most {at_most}")
        return value

    def texts(self, name: str, *, at_most: int, max_bytes: int) -> tuple[str, ...]:
        """Return a list of texts; an absent one is empty."""
        found = self.items(name, at_most=at_most)
        for number, item in enumerate(found):
            if not isinstance(item, str):
                raise self.at(name, number, f"an entry of `{name}` is {_kind(item)}, expected text")
            if "\0" in item:
                raise self.at(name, number, f"an entry of `{name}` holds a NUL character")
            size = len(item.encode("utf-8", "surrogatepass"))
            if size > max_bytes:
                reason = f"an entry of `{name}` is {size} bytes long, at most {max_bytes}"
                raise self.at(name, number, reason)
        return tuple(found)

    def at(self, name: str, number: int, reason: str) -> JsonFileError:
        """Return a complaint about one entry of a list."""
        return JsonFileError(self._document.line_of((*self.place, name, number)), reason)

    def _given(self, name: str, default: str | None) -> Any:
        if name not in self.value and default is None:
            raise self.error("", f"`{name}` is missing")
        return self.value.get(name, default)


def _kind(value: object) -> str:
    """Name a value's type as JSON does."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)
