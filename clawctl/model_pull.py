"""Brings a model of another machine into the folder: all its files, or none of them in place.

    python -m clawctl.model_pull pull FOLDER REF
    python -m clawctl.model_pull rm FOLDER NAME

do it for the daemon, and print lines of JSON; a model of the catalogue is `ollama:NAME`, too:

    {"status":"pulling 9f86d081884c","digest":"sha256:9f86…","total":98,"completed":12}
    {"status":"success"}
    {"error":"…","code":"not_found","hint":"…"}
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from clawctl.download import Download, Pace, Remote
from clawctl.model_catalogue import entry_of
from clawctl.model_sources import Source, find_source
from clawctl.modelfile import (
    PROJECTOR,
    Added,
    digest_of,
    is_remote,
    model_name,
    names_of,
    remove_model,
    sync_folder,
    taken_error,
    write_pin,
)
from clawctl.web import Web
from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.wire.model_pins import ModelPin


class Shown(Protocol):
    """Something that draws how far it is."""

    def show(self, done: int, total: int) -> None:
        """Draw that so much of so much is done."""
        ...


Bar = Callable[[str], AbstractContextManager[Shown]]
"""Begins to draw something, by what it is."""


@dataclass(frozen=True, kw_only=True)
class PullOptions:
    """How a model is pulled.

    Attributes:
        name: how it is called in the folder, "" for its own name.
        force: whether one of that name is overwritten.
        sha256: what a file without a digest of its source must have, "" for anything.
        vision: whether what gives it eyes comes along.
    """

    name: str = ""
    force: bool = False
    sha256: str = ""
    vision: bool = True


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """A model that is in the folder now, with digest and origin of its first file."""

    added: Added
    sha256: str
    source: str
    is_checked: bool
    projector: str = ""


class Puller:
    """Pulls into one folder. `bar` draws."""

    def __init__(self, web: Web, folder: Path, bar: Bar, pace: Pace | None = None) -> None:
        self._web = web
        self._folder = folder
        self._bar = bar
        self._pace = pace

    def pull(self, source: Source, options: PullOptions) -> Pulled:
        """Download what is missing and put it in place.

        Raises:
            ClawError: it cannot be had, its name is taken, or it is not what its source tells.
        """
        remotes = self._named(source, options)
        targets = [self._folder / remote.name for remote in remotes]
        digests = self._there(remotes, targets)
        has = [target for target in targets if os.path.lexists(target)]
        how = "there already" if digests else "pulled"
        if not digests:
            if has and not options.force:
                raise taken_error(has[0])
            digests = self._downloaded(remotes, targets)
        for target, digest in zip(targets, digests, strict=True):
            write_pin(target, ModelPin(sha256=digest, source=source.origin))
        sync_folder(self._folder)
        count = len(source.files)
        added = Added(
            name=model_name(targets[0]),
            path=targets[0],
            size_bytes=sum(target.stat().st_size for target in targets[:count]),
            how=how,
            replaced=bool(has) and how == "pulled",
        )
        return Pulled(
            added=added,
            sha256=digests[0],
            source=source.origin,
            is_checked=all(remote.sha256 for remote in remotes),
            projector=str(targets[count]) if len(targets) > count else "",
        )

    def _named(self, source: Source, options: PullOptions) -> list[Remote]:
        """Return all files by the names that they get."""
        files = source.files
        names = names_of([Path(each.name) for each in files], options.name)
        remotes = [replace(each, name=name) for each, name in zip(files, names, strict=True)]
        if options.sha256:
            if len(files) > 1 or (files[0].sha256 and files[0].sha256 != options.sha256):
                told = files[0].sha256 or "one for each of its parts"
                raise InvalidRequestError(
                    f"the digest of {source.name} is told by its source: {told}",
                    hint="Leave out --sha256, or see whether it is the model that you mean.",
                )
            remotes[0] = replace(remotes[0], sha256=options.sha256)
        if source.projector is not None and options.vision:
            eyes = f"{PROJECTOR}-{model_name(Path(names[0]))}.gguf"
            remotes.append(replace(source.projector, name=eyes))
        return remotes

    def _there(self, remotes: list[Remote], targets: list[Path]) -> list[str]:
        """Return the digests where all files are there already, as their source has them."""
        digests = []
        for remote, target in zip(remotes, targets, strict=True):
            if not remote.sha256 or not target.is_file():
                return []
            if not remote.member and remote.size_bytes not in {0, target.stat().st_size}:
                return []
            with self._bar(f"checking {target.name}") as bar:
                digests.append(digest_of(target, bar.show))
            if digests[-1] != remote.sha256:
                return []
        return digests

    def _downloaded(self, remotes: list[Remote], targets: list[Path]) -> list[str]:
        downloads = [Download(self._web, each, self._folder, self._pace) for each in remotes]
        digests = []
        for remote, download in zip(remotes, downloads, strict=True):
            with (
                self._bar(f"pulling {remote.name}") as bar,
                self._bar(f"checking {remote.name}") as check,
            ):
                digests.append(download.run(bar.show, check.show))
        for download, target in zip(downloads, targets, strict=True):
            download.settle(target)
        return digests


def pull_ref(ref: str, folder: Path, options: PullOptions, bar: Bar) -> Pulled:
    """Pull what a name stands for, of the catalogue or another machine's.

    Raises:
        ClawError: there is no such model, or it cannot be had.
    """
    web = Web()
    source = ref
    if not is_remote(ref):
        entry = entry_of(ref)
        source = entry.source
        options = replace(
            options, name=options.name or entry.file, sha256=options.sha256 or entry.sha256
        )
    return Puller(web, folder, bar).pull(find_source(source, web, os.environ), options)


# --- for the daemon

_MARK = 12


def main(words: Sequence[str]) -> int:
    """Do what the daemon asks for, and tell of it in lines; return an exit code."""
    what, folder, name = words
    try:
        if what == "rm":
            remove_model(Path(folder), name.removesuffix(":latest").replace(":", "-"))
        else:
            _pull_telling(Path(folder), name)
    except ClawError as error:
        _tell(error=error.message, code=error.code, hint=error.hint)
        return 1
    _tell(status="success")
    return 0


def _pull_telling(folder: Path, ref: str) -> None:
    web = Web()
    source = find_source(_catalogued(ref), web, os.environ)
    digests = {each.name: each.sha256 for each in (*source.files, source.projector) if each}

    @contextmanager
    def bar(what: str) -> Iterator[Shown]:
        yield _Told(what, digests)

    Puller(web, folder, bar).pull(source, PullOptions())


def _catalogued(ref: str) -> str:
    """Return what the catalogue has by a name without a place, else the name."""
    try:
        return entry_of(ref.removeprefix("ollama:").removesuffix(":latest")).source
    except NotFoundError:
        return ref


class _Told:
    """Tells how far it is in lines of JSON."""

    def __init__(self, what: str, digests: dict[str, str]) -> None:
        act, _, name = what.partition(" ")
        known = digests.get(name, "") or (next(iter(digests.values())) if len(digests) == 1 else "")
        self._digest = f"sha256:{known}" if known else ""
        self._status = f"pulling {known[:_MARK] or name}"
        self._is_check = act == "checking"
        self._was_told = False

    def show(self, done: int, total: int) -> None:
        if not self._is_check:
            _tell(status=self._status, digest=self._digest, total=total, completed=done)
        elif not self._was_told:
            self._was_told = True
            _tell(status="verifying sha256 digest")


def _tell(**line: str | int | None) -> None:
    sys.stdout.buffer.write(msgspec.json.encode({k: v for k, v in line.items() if v}) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
