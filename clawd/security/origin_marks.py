"""Marks of untrusted files, and an index that finds those at, above and below a path."""

import bisect
from collections.abc import Iterable, Iterator

import msgspec

FOREVER_NS = 2**63 - 1
_NAME_NS = 1  # no file was changed then


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something untrusted.

    Attributes:
        path: a file, or a folder with all that is below it; absolute and resolved.
        sources: where its text came from.
        began_at_ns: what was changed before is not meant.
        ended_at_ns: what was changed after is not meant.
    """

    path: str
    sources: tuple[str, ...]
    began_at_ns: int = 0
    ended_at_ns: int = FOREVER_NS

    @property
    def is_open(self) -> bool:
        """Whether it is of a command that has not ended."""
        return self.began_at_ns > 0 and self.ended_at_ns == FOREVER_NS

    @property
    def is_of_name(self) -> bool:
        """Whether the name alone is meant, and not what lies below it."""
        return self.began_at_ns == self.ended_at_ns == _NAME_NS


def name_mark(folder: str, sources: tuple[str, ...]) -> Mark:
    """Return a mark of a folder's name: who lists it reads it, who reads a file in it does not."""
    return Mark(path=folder, sources=sources, began_at_ns=_NAME_NS, ended_at_ns=_NAME_NS)


class MarkIndex:
    """Marks, one for each path and begin."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._by_path: dict[str, dict[int, Mark]] = {}
        self._count = 0
        for mark in marks:
            held = self._by_path.setdefault(mark.path, {})
            self._count += mark.began_at_ns not in held
            held[mark.began_at_ns] = mark
        self._paths = sorted(self._by_path)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Mark]:
        return (mark for held in self._by_path.values() for mark in held.values())

    def __contains__(self, mark: Mark) -> bool:
        return self._by_path.get(mark.path, {}).get(mark.began_at_ns) == mark

    def add(self, mark: Mark) -> None:
        """Take a mark in the place of one of the same path and begin."""
        held = self._by_path.get(mark.path)
        if held is None:
            held = self._by_path[mark.path] = {}
            bisect.insort(self._paths, mark.path)
        self._count += mark.began_at_ns not in held
        held[mark.began_at_ns] = mark

    def remove(self, mark: Mark) -> None:
        """Drop the mark of this path and begin, if there is one."""
        held = self._by_path.get(mark.path, {})
        if held.pop(mark.began_at_ns, None) is None:
            return
        self._count -= 1
        if not held:
            del self._by_path[mark.path]
            del self._paths[bisect.bisect_left(self._paths, mark.path)]

    def over(self, path: str) -> list[Mark]:
        """Return the marks of a path (absolute) and of the folders that it lies in."""
        found: list[Mark] = []
        while True:
            found += self._by_path.get(path, {}).values()
            if path in ("", "/"):
                return found
            path = path.rpartition("/")[0] or "/"

    def below(self, folder: str) -> list[Mark]:
        """Return the marks of what lies in a folder, at any depth."""
        stem = folder.rstrip("/")
        first = bisect.bisect_left(self._paths, f"{stem}/")
        end = bisect.bisect_left(self._paths, f"{stem}0")  # "0" is next to "/"
        return [
            mark
            for path in self._paths[first:end]
            if path != folder
            for mark in self._by_path[path].values()
        ]
