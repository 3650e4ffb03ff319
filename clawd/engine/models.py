"""Finds a model's file by its name; never another model than the one that was asked for."""

import contextlib
from pathlib import Path

from clawd.engine.embedded import embedded_model_path
from clawd.engine.parts import SHARD, files_of
from clawd.errors import ModelNotFoundError

EMBEDDED = "embedded"


class ModelFolder:
    """The models of one folder, and the embedded one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return what `find` knows, sorted; the embedded model first."""
        return [EMBEDDED, *sorted(self._files())]

    def paths(self) -> dict[str, Path]:
        """Return the files by name, as `find` gives them; the embedded model first."""
        embedded = self._lookup(EMBEDDED)
        first = {EMBEDDED: embedded} if embedded is not None else {}
        return first | dict(sorted(self._files().items()))

    def name_of(self, path: Path) -> str:
        """Return the one name of a file that `find` gave, however it was asked for."""
        names = [name for name, each in self.paths().items() if each == path]
        return names[0] if names else str(path)

    def find(self, name: str) -> Path:
        """Return the file of a model.

        `embedded`, an absolute path, or the name of a file of the folder: with or without
        `.gguf`, in any case, of a split model without its number.

        Raises:
            ModelNotFoundError: there is none of this name; says which are there.
        """
        path = self._lookup(name.strip())
        if path is None:
            raise ModelNotFoundError(
                f"no model named {name!r}; there are: {', '.join(self.names())}",
                hint=f"Put a .gguf file into {self._folder} (`clawctl model add FILE`), or give an "
                "absolute path.",
            )
        return path

    def _lookup(self, name: str) -> Path | None:
        if name.lower() == EMBEDDED:
            path = embedded_model_path()
            return path if path.is_file() else None
        if Path(name).is_absolute():
            path = Path(name)
            return path if path.suffix.lower() == ".gguf" and path.is_file() else None
        wanted = name[: -len(".gguf")] if name.lower().endswith(".gguf") else name
        files = self._files()
        if wanted in files:
            return files[wanted]
        alike = [path for stem, path in files.items() if stem.lower() == wanted.lower()]
        return alike[0] if len(alike) == 1 else None

    def _files(self) -> dict[str, Path]:
        """Return the folder's models by stem; a split model stands under its first part."""
        found: dict[str, Path] = {}
        try:
            paths = sorted(self._folder.iterdir())
        except OSError:
            return found
        for path in paths:
            if path.suffix.lower() != ".gguf" or not path.is_file():
                continue
            shard = SHARD.search(path.stem)
            if shard is None:
                found[path.stem] = path
            elif int(shard[1]) == 1:
                found[path.stem[: shard.start()]] = path
        return found


def size_bytes(path: Path) -> int:
    """Return the size of all files of a model; one that has just gone counts as nothing."""
    total = 0
    for part in files_of(path):
        with contextlib.suppress(OSError):
            total += part.stat().st_size
    return total
