"""Finds a model's file by its name; never another model than the one that was asked for."""

import contextlib
import hashlib
from pathlib import Path

from clawd.engine.assistant import (
    ASSISTANT,
    BASE_FILE,
    PULL,
    SHARED_MODELS,
    Assistant,
    packaged_assistant,
)
from clawd.engine.embedded import embedded_model_path
from clawd.engine.gguf import SHARD, files_of
from clawd.errors import ModelNotFoundError

EMBEDDED = "embedded"
AUTO = "auto"
"""The assistant where its card makes it the default and it can be used, else the embedded model."""
TOY_LIMIT = 1_200
"""So many characters of a message the embedded model's chat template shows it."""
PROJECTOR = "mmproj-"
"""Begins the name of what a model needs for images; no model by itself."""
TOY_FIRST = "the packaged toy answers; `clawctl model recommend` says which real model fits here"
_SAMPLE_BYTES = 1024 * 1024


class ModelFolder:
    """The models of one folder, and those of the package: the embedded one and the assistant.

    The assistant's base lies in the folder, or where the machine's models are.
    """

    def __init__(
        self, folder: Path, *, shared: Path = SHARED_MODELS, assistant: Assistant | None = None
    ) -> None:
        self._folder = folder
        self._shared = shared
        self.assistant = assistant or packaged_assistant()

    def names(self) -> list[str]:
        """Return what `find` knows, sorted; the embedded model first."""
        return list(dict.fromkeys([EMBEDDED, *self.paths()]))

    def paths(self) -> dict[str, Path]:
        """Return the files by name, as `find` gives them; the embedded model first."""
        embedded, base = self._lookup(EMBEDDED), self.base
        first = {EMBEDDED: embedded} if embedded is not None else {}
        first |= {ASSISTANT: base} if base is not None else {}
        return first | dict(sorted(self._files().items()))

    @property
    def base(self) -> Path | None:
        """The file of the assistant's base, looked at by its name alone; None without one."""
        places = (self._folder / BASE_FILE, self._shared / BASE_FILE)
        return next((path for path in places if path.is_file()), None)

    def resolved(self, name: str) -> str:
        """Return which model a name means: of `auto` the one that answers now."""
        if name.strip().lower() != AUTO:
            return name
        return EMBEDDED if self.shortfall() else ASSISTANT

    def shortfall(self) -> str:
        """Return why the embedded model answers for `auto` and what to do, "" where it does not."""
        if not self.assistant.is_default:
            return TOY_FIRST
        if (base := self.base) is None:
            return f"the packaged toy answers; `{PULL}` gets the real small model (98 MB)"
        problem = self.assistant.problem(base)
        if not problem:
            return ""
        what = f"`{PULL} --force` gets it anew" if self.assistant.is_there else "install clawd anew"
        return f"the packaged toy answers, for the assistant cannot: {problem}; {what}"

    def name_of(self, path: Path) -> str:
        """Return the one name of a file that `find` gave, however it was asked for."""
        names = [name for name, each in self.paths().items() if each == path]
        return names[0] if names else str(path)

    def find(self, name: str) -> Path:
        """Return the file of a model.

        `embedded`, `assistant` (of which it is the base), `auto`, an absolute path, or the name of
        a file of the folder: with or without `.gguf`, in any case, of a split model without its
        number.

        Raises:
            ModelNotFoundError: there is none of this name; says which are there.
        """
        path = self._lookup(self.resolved(name.strip()))
        if path is None:
            if name.strip().lower() == ASSISTANT:
                raise ModelNotFoundError(
                    f"the base of the assistant is not here: no {BASE_FILE} in {self._folder}",
                    hint=f"Get it (98 MB): {PULL}",
                )
            raise ModelNotFoundError(
                f"no model named {name!r}; there are: {', '.join(self.names())}",
                hint="Answer from one of these (`clawctl model use NAME`), get one (`clawctl model "
                f"pull REF`), or put a .gguf file into {self._folder} (`clawctl model add FILE`).",
            )
        return path

    def _lookup(self, name: str) -> Path | None:
        if name.lower() == EMBEDDED:
            path = embedded_model_path()
            return path if path.is_file() else None
        if name.lower() == ASSISTANT:
            return self.base
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
            if path.name.lower().startswith(PROJECTOR):
                continue
            shard = SHARD.search(path.stem)
            if shard is None:
                found[path.stem] = path
            elif int(shard[1]) == 1:
                found[path.stem[: shard.start()]] = path
        return found


def projector_of(path: Path) -> Path | None:
    """Return the file beside a model with which it reads pictures, None without one."""
    projector = path.with_name(f"{PROJECTOR}{SHARD.sub('', path.stem)}.gguf")
    return projector if projector.is_file() else None


def size_bytes(path: Path) -> int:
    """Return the size of all files of a model; one that has just gone counts as nothing."""
    total = 0
    for part in files_of(path):
        with contextlib.suppress(OSError):
            total += part.stat().st_size
    return total


def sampled_digest(path: Path) -> str:
    """Return a SHA-256 over a file's size, its first and its last megabyte: quick for large ones.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        first = file.read(_SAMPLE_BYTES)
        size = file.seek(0, 2)
        file.seek(max(size - _SAMPLE_BYTES, 0))
        return hashlib.sha256(b"%d\n%b%b" % (size, first, file.read(_SAMPLE_BYTES))).hexdigest()
