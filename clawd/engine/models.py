"""Finds a model's file by its name; never another model than the one that was asked for.

A model's file is the one whose digest was noted when it was put there, or it is not loaded.

What is noted, and where, is `clawd.wire.models`. A file that looks as when it was last found
right is not read again; one that looks otherwise is, and what is found is noted. This finds what
was exchanged, damaged or rewritten by the program that it is shared with; whoever may write the
folder may write the pin as well.

The packaged assistant: a small real model, and clawd's own LoRA adapter over it.

Adapter, chat template and card are package data. The base, a file of 98 MB, is not: it stands as
`assistant.gguf` in a folder of models. What is used is what the adapter was made for, by digest;
where anything of it is missing or damaged, the embedded model answers who asked for neither.
Where both were merged into one file, `assistant-merged.gguf`, that is what is loaded: if it is what
was noted of it, and says that it was made of the base and the adapter of the card.

The card begins so, and figures follow:

    is_default = false
    [base]
    name = "SmolLM2-135M-Instruct Q4_1"
    sha256 = "b179c952…"
    licence = "Apache-2.0"

    [adapter]
    sha256 = "9f86d081…"
"""

import contextlib
import hashlib
import os
import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawd.engine import embedded
from clawd.engine.embedded import embedded_model_path
from clawd.engine.gguf import SHARD, files_of, read_head
from clawd.errors import CancelledByUserError, ModelLoadError, ModelNotFoundError
from clawd.wire import models

ASSISTANT = "assistant"
BASE_FILE = f"{ASSISTANT}.gguf"
MERGED_FILE = f"{models.MERGED_ASSISTANT}.gguf"
PULL, MERGE = "clawctl model pull assistant", "clawctl model merge"
SHARED_MODELS = Path("/usr/share/clawd/models")
"""Where the package `clawd-model-small` puts the base."""

_MAX_CARD_BYTES = 1 << 20
_MAX_BASE_BYTES = 1 << 30  # what is larger is another model, and would take long to read


class CallThresholds(msgspec.Struct, frozen=True, kw_only=True):
    """From which probability on a model's calls are made; None leaves it to the samplers.

    A small model's likeliest first token is a poor judge: it declines what it half knows how to do,
    and goes on to change what it was only asked about. What a wrong call costs is not the same
    everywhere, so neither is what it takes.

    Attributes:
        first: an answer to what a person said begins with a call.
        further: one behind a tool's result does.
        change: of all of a call together, where it may change what is there.
    """

    first: float | None = None
    further: float | None = None
    change: float = 0.0


class Assistant(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the package that make an assistant of its base; a test has its own."""

    adapter: Path
    template: Path
    card: Path

    @property
    def is_there(self) -> bool:
        """Whether the package has all of them."""
        return not self._lacking()

    @property
    def is_default(self) -> bool:
        """Whether the card says that it answers unasked: it was judged good enough."""
        try:
            return self.read_card().get("is_default") is True
        except (OSError, ValueError):
            return False

    def problem(self, base: Path) -> str:
        """Return why it cannot be made with this base, "" where it can; blocks once for each file.

        What was found right, or wrong, is not read again while it looks the same.
        """
        if lacking := self._lacking():
            return f"this installation lacks {lacking}"
        try:
            card = self.read_card()
            for path, part in ((base, "base"), (self.adapter, "adapter")):
                if path.stat().st_size > _MAX_BASE_BYTES:
                    return f"{path} is too large to be its {part}"
                wanted, found = fact(card, part, "sha256"), _digest_of_file(path)
                if found != wanted:
                    return f"{path} is damaged: it has SHA-256 {found}, the card says {wanted}"
        except (OSError, ValueError) as error:
            return f"it cannot be read: {error}"
        return ""

    def check(self, base: Path) -> None:
        """See that it can be made with this base; blocks as `problem` does.

        Raises:
            ModelLoadError: it cannot.
        """
        if problem := self.problem(base):
            hint = f"Get its base anew: {PULL} --force" if self.is_there else "Install clawd anew."
            raise ModelLoadError(f"the assistant cannot be used: {problem}", hint=hint)

    def merge_problem(self, path: Path) -> str:
        """Return why a file is not base and adapter in one, "" where it is; blocks as `problem`."""
        try:
            looks, pin = models.seen(path.stat()), read_pin(path)
            if pin is None or looks.size > _MAX_BASE_BYTES:
                return "its digest was not noted" if pin is None else "it is too large"
            if (found := _digest_of_file(path)) != pin.sha256:
                return f"it is damaged: it has SHA-256 {found}, pinned is {pin.sha256}"
            card = self.read_card()
            wanted = tuple(fact(card, part, "sha256") for part in ("base", "adapter"))
            made = _read_merged_from(path, looks)
        except (OSError, ValueError, ModelLoadError) as error:
            return f"it cannot be read: {error}"
        return "" if made == wanted else "it was made of another base, or of another adapter"

    def call_thresholds(self) -> CallThresholds:
        """Return what the card says of them; none where it cannot be read."""
        try:
            return msgspec.convert(self.read_card().get("calls", {}), CallThresholds)
        except (OSError, ValueError):
            return CallThresholds()

    def read_card(self) -> dict[str, Any]:
        """Return what is told of how it was made and how good it is.

        Raises:
            OSError: the card cannot be read; ValueError: it is none.
        """
        with self.card.open("rb") as file:
            return tomllib.loads(file.read(_MAX_CARD_BYTES).decode("utf-8"))

    def _lacking(self) -> str:
        files = (self.adapter, self.template, self.card)
        return next((path.name for path in files if not path.is_file()), "")


def packaged_assistant() -> Assistant:
    """Return the assistant of the installed package, whose files need not be there."""
    folder = embedded.embedded_model_path().parent
    return Assistant(
        adapter=folder / "assistant-adapter.gguf",
        template=folder / "assistant.jinja",
        card=folder / "assistant-card.toml",
    )


def fact(card: dict[str, Any], *keys: str) -> str:
    """Return a text of a card, "" where it is not told."""
    value: Any = card
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _digest_of_file(path: Path) -> str:
    looks = models.seen(path.stat())
    try:
        pin = read_pin(path)
    except ModelLoadError:
        pin = None
    return pin.sha256 if pin is not None and pin.seen == looks else _read_digest(path, looks)


@lru_cache(maxsize=8)
def _read_digest(path: Path, _looks: models.Seen) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=8)
def _read_merged_from(path: Path, _looks: models.Seen) -> tuple[str, ...]:
    return read_head(path).merged_from


_PIECE_BYTES = 4 << 20
PinState = Literal["none", "right", "changed"]


def read_pin(path: Path) -> models.ModelPin | None:
    """Return what was noted of a file, None for nothing; blocks.

    Raises:
        ModelLoadError: what was noted cannot be read.
    """
    beside = models.pin_of(path)
    try:
        with beside.open("rb") as file:
            return models.decode_pin(file.read(models.MAX_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"the pin of a model cannot be read ({beside}): {error}",
            hint=f"See whether {path.name} is what it should be, then note its digest anew: "
            f"clawctl model accept {path.stem}",
        ) from error


def check_pins(path: Path, name: str, is_over: Callable[[], bool] = lambda: False) -> None:
    """See that all files of a model are what was noted of them; blocks, for large ones long.

    Raises:
        ModelLoadError: one is another than was noted.
        CancelledByUserError: `is_over` said so meanwhile.
    """
    for part in files_of(path):
        pin = read_pin(part)
        if pin is None or not part.exists():
            continue
        found = _digest(part, pin, is_over)
        if found != pin.sha256:
            raise ModelLoadError(
                f"the file of model {name} changed since it was put there ({part}): it has SHA-256 "
                f"{found}, pinned is {pin.sha256}",
                hint=f"If you changed it: clawctl model accept {name}. If not, get it anew"
                f"{_from(pin)}.",
                data={"path": str(part), "found": found, "pinned": pin.sha256},
            )


def pin_state(path: Path) -> tuple[PinState, models.ModelPin | None]:
    """Return how a model's files are to what was noted of them, and what was noted of the first.

    Blocks, for large ones long. What cannot be read counts as changed.
    """
    pin = None
    try:
        pin = read_pin(path)
        check_pins(path, path.stem)
    except ModelLoadError:
        return "changed", pin
    return ("none" if pin is None else "right"), pin


def _digest(path: Path, pin: models.ModelPin, is_over: Callable[[], bool]) -> str:
    try:
        with path.open("rb", buffering=0) as file:
            looks = models.seen(os.fstat(file.fileno()))
            if pin.seen == looks:
                return pin.sha256
            digest = hashlib.sha256()
            piece = bytearray(_PIECE_BYTES)
            while count := file.readinto(piece):
                if is_over():
                    raise CancelledByUserError("the engine is shutting down")
                digest.update(memoryview(piece)[:count])
            is_still = models.seen(os.fstat(file.fileno())) == looks
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}") from error
    found = digest.hexdigest()
    if found == pin.sha256 and is_still:
        _note(path, msgspec.structs.replace(pin, seen=looks))
    return found


def _note(path: Path, pin: models.ModelPin) -> None:
    """Note that a file was found right; where that may not be written it is read again."""
    beside = models.pin_of(path)
    fresh = beside.with_name(f".{beside.name}.{os.getpid()}.new")
    with contextlib.suppress(OSError):
        try:
            fresh.write_bytes(models.encode_pin(pin))
            fresh.chmod(0o644)
            fresh.replace(beside)
        finally:
            fresh.unlink(missing_ok=True)


def _from(pin: models.ModelPin) -> str:
    if pin.source.startswith(("hf:", "ollama:")):
        return f": clawctl model pull {pin.source} --force"
    return f" from {pin.source}" if pin.source else ""


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

    def merged(self) -> tuple[Path | None, str]:
        """Return the file that is the assistant's base and adapter in one, None without one.

        And what to know of one that is there and not used, in a line; "" where that is none.
        """
        told = ""
        for path in (self._folder / MERGED_FILE, self._shared / MERGED_FILE):
            if not path.is_file():
                continue
            if not (problem := self.assistant.merge_problem(path)):
                return path, ""
            told = told or (
                f"the assistant answers slower than it could, from base and adapter: {path} is "
                f"not used, for {problem}; `{MERGE}` makes it anew"
            )
        return None, told

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
            if path.name.lower().startswith(PROJECTOR) or path.name == MERGED_FILE:
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
