"""`clawctl model`: the models of this machine."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from clawctl import modelfile
from clawctl.app import App, Name, config_file_option, confirm, json_command
from clawctl.client import is_nobody
from clawctl.progress import ProgressLine, call
from clawctl.render import emit, emit_json, note, say, show_fields, show_table, size
from clawctl.views import warm_text
from clawd.errors import ClawError, ProtocolError
from clawd.paths import expanded, layout
from clawd.wire import models as wire
from clawd.wire.codec import mirror
from clawd.wire.safe_text import visible_line

if TYPE_CHECKING:
    from clawctl.model_import import ForeignModel

LOAD_LIMIT_S = 3_600.0
PACKAGED = (modelfile.RESERVED, "auto")
"""What is there without a file of the folder; `auto` is the better of embedded and assistant."""
CHOOSE = "Choose another: clawctl model use NAME"
USES = ("tools", "chat", "code", "reasoning", "images", "small", "embeddings")


class ModelAdded(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is in the folder now."""

    name: str
    path: str
    size_bytes: int
    how: str
    replaced: bool
    sha256: str
    source: str


class Available(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue; memory is with a context of 8,192 tokens."""

    name: str
    source: str
    size_gb: float
    memory_gb: float
    context: int
    family: str
    licence: str
    good_for: tuple[str, ...]


class ModelFound(msgspec.Struct, frozen=True, kw_only=True):
    """A model of another program; `how` is how it was linked, empty where it was only found."""

    name: str
    path: str
    size_bytes: int
    program: str
    sha256: str
    how: str


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    ok: bool = True
    message: str


@click.group()
def command() -> None:
    """Get, list, choose, load and unload the models of this machine."""


@command.command("list")
@click.option("--available", is_flag=True, help="List what can be pulled by its name instead.")
@json_command(wire.ModelList | list[Available])
def list_(app: App, *, available: bool, as_json: bool) -> None:
    """List the models that are there, and which of them are loaded."""
    if available:
        _list_catalogue(as_json=as_json)
        return
    models = app.call(wire.ListModels())
    if as_json:
        emit_json(models)
        return
    show_table(
        ("NAME", "SIZE", "LOADED", "PROFILE"),
        [(m.name, size(m.size_bytes), m.state or "no", m.profile or "-") for m in models.items],
    )
    note(f"Files are in {models.folder}")
    if models.default.startswith("/") or models.default in {line.name for line in models.items}:
        note(f"Answers come from {visible_line(models.default)}")
    elif models.default:
        note(
            f"Answers are to come from {visible_line(models.default)}, which is not there. {CHOOSE}"
        )


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", default="", metavar="NAME", help="Its name there; else the file's own.")
@click.option("--force", is_flag=True, help="Overwrite a model of that name.")
@click.option("--copy", is_flag=True, help="Copy it, also where a hard link would do.")
@json_command(ModelAdded)
def add(app: App, file: Path, name: str, *, force: bool, copy: bool, as_json: bool) -> None:
    """Put a GGUF file into the folder of models: linked where possible, else copied.

    Of a split model (…-00001-of-00003.gguf) any part stands for all of them.
    """
    _add(
        app,
        file,
        modelfile.AddOptions(name=name, force=force, copy=copy),
        sha256="",
        as_json=as_json,
    )


@command.command()
@click.argument("ref", metavar="REF")
@click.option("--name", default="", metavar="NAME", help="Its name here; else its own.")
@click.option("--force", is_flag=True, help="Overwrite a model of that name.")
@click.option("--sha256", default="", metavar="HEX", help="The digest that it must have.")
@click.option("--no-vision", is_flag=True, help="Leave the projector for images where it is.")
@json_command(ModelAdded)
def pull(app: App, /, ref: str, **given: str | bool) -> None:
    """Download a model into the folder of models; what came goes on after a break.

    REF is a name of the catalogue (clawctl model list --available), hf:ORG/REPO with :QUANT or
    :FILE behind it if need be, ollama:NAME[:TAG], pypi:NAME==VERSION:FILE (of a wheel), an https://
    address, or a path. Its digest is checked and kept: a file that changes is not loaded. HF_TOKEN,
    HF_ENDPOINT, PIP_INDEX_URL and HTTPS_PROXY count.
    """
    if not modelfile.is_remote(ref) and ("/" in ref or expanded(ref).exists()):
        options = modelfile.AddOptions(name=str(given["name"]), force=bool(given["force"]))
        _add(
            app, expanded(ref), options, sha256=str(given["sha256"]), as_json=bool(given["as_json"])
        )
        return
    from clawctl.model_pull import PullOptions, pull_ref

    wanted = PullOptions(
        name=str(given["name"]),
        force=bool(given["force"]),
        sha256=_digest(str(given["sha256"])),
        vision=not given["no_vision"],
    )
    try:
        done = pull_ref(ref, _models_folder(app), wanted, lambda what: _bar(app, what))
    except KeyboardInterrupt:
        note(f"\nWhat has come is kept; the same command goes on there: clawctl model pull {ref}")
        raise
    if given["as_json"]:
        emit_json(_values(done.added, done.sha256, done.source))
        return
    _say_added(done.added)
    if done.projector:
        note(f"What it needs for images is beside it: {done.projector}")
    if not done.is_checked:
        note(f"Its source tells no digest. What came has SHA-256 {done.sha256}")
    if done.added.name == modelfile.ASSISTANT:
        note("Faster, for 145 MB more: clawctl model merge")
    note(f"Answer from it: clawctl model use {done.added.name}")


@command.command()
@click.option("--for", "good_for", type=click.Choice(USES), help="What it shall be good for.")
@click.option("--no-probe", is_flag=True, help="Do not measure how fast memory is.")
@json_command("clawctl.model_catalogue:Recommended")
def recommend(app: App, *, good_for: str | None, no_probe: bool, as_json: bool) -> None:
    """Tell which models of the catalogue this machine can run, and about how fast at the most.

    Reads memory for two seconds. The estimate is that rate over the bytes that a token reads, as
    busy as the machine is meanwhile; long contexts and weak processors make it slower. What is
    slower than people read stands behind the others.
    """
    from clawctl.model_catalogue import (
        PROBE_S,
        Recommended,
        catalogue,
        fitting,
        look_at_machine,
    )

    bar = ProgressLine("measuring memory", quiet=app.is_quiet)
    with bar:
        machine = look_at_machine(probe_s=0.0 if no_probe else PROBE_S)
    fits = fitting(catalogue(), machine, good_for or "")
    if as_json:
        emit_json(Recommended(machine=machine, models=fits))
        return
    rate = f", read at {machine.ram_gb_per_s:.0f} GB/s" if machine.ram_gb_per_s else ""
    note(f"free memory: {machine.ram_gb:.1f} GB{rate}; GPU: {machine.gpu}")
    headers = ("NAME", "SIZE", "MEMORY", "ON", "TOK/S", "LICENCE", "GOOD FOR")
    rows = [
        (
            fit.name,
            size(round(fit.size_gb * 1e9)),
            f"{fit.memory_gb:.1f} GB",
            fit.place,
            _about(fit.tokens_per_s),
            fit.licence,
            ", ".join(fit.good_for),
        )
        for fit in fits
    ]
    show_table(headers, rows, nothing="None of the catalogue fits into what is free.")
    if rows:
        note(f"Get one: clawctl model pull {fits[0].name}")


def _about(tokens_per_s: float) -> str:
    """Return an estimate of a speed; "-" where there is none."""
    digits = 0 if tokens_per_s >= 10 else 1
    return f"~{tokens_per_s:.{digits}f}" if tokens_per_s else "-"


def _list_catalogue(*, as_json: bool) -> None:
    from clawctl.model_catalogue import catalogue

    entries = catalogue()
    if as_json:
        emit_json([mirror(Available, entry) for entry in entries])
        return
    headers = ("NAME", "SIZE", "MEMORY", "CONTEXT", "GOOD FOR", "TOOL CALLS", "LICENCE")
    rows = [
        (
            entry.name,
            size(round(entry.size_gb * 1e9)),
            f"{entry.memory_gb:.1f} GB",
            entry.context,
            ", ".join(entry.good_for),
            entry.family or "-",
            entry.licence,
        )
        for entry in entries
    ]
    show_table(headers, rows, narrow=(headers[:5], [row[:5] for row in rows]))
    note("Get one: clawctl model pull NAME. What fits here: clawctl model recommend")


@command.command("import")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "wants_all", is_flag=True, help="All of them.")
@click.option(
    "--from",
    "place",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Look there, as at a folder of Ollama, LM Studio, the hub or llama.cpp.",
)
@click.option("--force", is_flag=True, help="Overwrite a model of that name.")
@json_command(list[ModelFound])
def import_(app: App, /, names: tuple[str, ...], place: Path | None, **given: bool) -> None:
    """Use the models that other programs have here: linked, not copied. Without NAME list them.

    Looks where Ollama, LM Studio, the Hugging Face hub's tools and llama.cpp keep them. A file that
    such a program changes later is not loaded until you accept it.
    """
    from clawctl.model_import import find_models, import_model, named

    found = find_models(os.environ, place)
    folder = _models_folder(app)
    chosen = found if given["wants_all"] else [named(found, name) for name in names]
    done: dict[str, modelfile.Added] = {}
    for each in chosen:
        with _bar(app, f"checking {each.name}") as bar:
            done[each.name] = import_model(each, folder, force=given["force"], draw=bar.show)
    if given["as_json"]:
        emit_json([_import_values(each, done.get(each.name)) for each in chosen or found])
        return
    for added in done.values():
        _say_added(added)
    if not chosen:
        rows = [(each.name, size(each.size_bytes), each.program) for each in found]
        show_table(("NAME", "SIZE", "FROM"), rows, nothing="No other program has models here.")
        if rows:
            note("Use one: clawctl model import NAME; all of them: clawctl model import --all")


@command.command()
@click.argument("name", type=Name("models"))
@json_command(wire.ModelDetail)
def show(app: App, name: str, *, as_json: bool) -> None:
    """Tell what a model is: size, context, how it calls tools, its digest, where it is from."""
    with app.client() as client:
        bar = ProgressLine(f"checking {name}", quiet=app.is_quiet)
        model = call(client, wire.ShowModel(name=name), bar, limit_s=LOAD_LIMIT_S)
    if as_json:
        emit_json(model)
        return
    pin = {"none": "no digest was noted", "right": "the file has it", "changed": "THE FILE CHANGED"}
    rows = [
        ("name", model.name),
        ("file", f"{model.path} ({size(model.size_bytes)})"),
        ("model", f"{model.title or '-'}, {model.architecture}, {model.quantization or '-'}"),
        ("parameters", _billions(model.parameters)),
        ("context", model.context_size or "-"),
        ("tool calls", _tool_calls(model)),
        ("reasoning", "yes" if model.reasoning else "no"),
        ("images", model.vision or "no"),
        *([("", f"{model.vision_sha256 or '-'} ({pin[model.vision_pin]})")] * bool(model.vision)),
        ("licence", model.licence or "-"),
        ("sha256", f"{model.sha256 or '-'} ({pin[model.pin]})"),
        ("from", model.source or "-"),
        ("loaded", model.state or "no"),
        ("profile", model.profile or "-"),
        *([("form", visible_line(model.form))] * bool(model.form)),
    ]
    show_fields([*rows, *_of_the_package(model)])


def _of_the_package(model: wire.ModelDetail) -> Iterator[tuple[str, str]]:
    """Yield what only models with adapters, or with a card, have to tell."""
    if model.adapters:
        digest = f" (sha256 {model.adapter_sha256})" if model.adapter_sha256 else ""
        yield "adapter", f"{', '.join(model.adapters)}{digest}"
    for name, table in model.card.items():
        if name in {"base", "adapter"} or not isinstance(table, dict):
            continue
        facts = (f"{key.replace('_', ' ')} {value}" for key, value in table.items())
        yield name.replace("_", " "), ", ".join(facts)
    if model.reads:
        yield "reads", model.reads


@command.command()
@click.argument("name", type=Name("models"))
@config_file_option
@json_command("clawctl.config_edit:Edited")
def use(app: App, name: str, file: str | None, *, as_json: bool) -> None:
    """Answer from a model from now on: the config names it, and a running daemon takes it over.

    NAME is one of clawctl model list, or auto: the assistant where its base is, else embedded.
    """
    from clawctl.config_edit import config_of, put, read_config
    from clawctl.onboarding import OnboardingAnswers, changed

    stem = name.lower()
    if stem not in PACKAGED and not (
        stem == modelfile.ASSISTANT and (modelfile.SHARED / f"{stem}.gguf").is_file()
    ):
        stem = modelfile.model_name(modelfile.files_here(_models_folder(app), name)[0])
    path = config_of(file)
    before = read_config(path)
    after = changed(before.decode(), OnboardingAnswers(source="gguf"), stem).encode()
    done = put(app, path, before, after, wanted=file is None)
    emit(done, f"{done.message} Answers come from {stem}.", as_json=as_json)


@command.command()
@click.argument("name", type=Name("models"), default=modelfile.ASSISTANT)
@click.option(
    "--adapter",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The LoRA adapter, a GGUF file; the assistant has its own.",
)
@click.option("--name", "new", default="", metavar="NAME", help="Its name; else NAME-merged.")
@click.option("--force", is_flag=True, help="Overwrite a model of that name.")
@json_command(ModelAdded)
def merge(app: App, /, name: str, **given: str | bool | Path | None) -> None:
    """Make one file of a model and a LoRA adapter over it, as Q8_0: it answers faster than the two.

    NAME is a model of the folder, or the path of a GGUF file, beside which the result then goes.
    Without one it is the packaged assistant, which answers from the result from then on. Takes
    seconds for a small model, and as much room as the model has at 8 bits.
    """
    from clawctl import model_merge

    adapter, new = given["adapter"], str(given["new"])
    is_assistant = name.lower() == modelfile.ASSISTANT and adapter is None and not new
    expected = ("", "")
    if is_assistant:
        wanted, expected = model_merge.of_assistant(_models_folder(app))
    elif adapter is None:
        raise click.UsageError(f"--adapter FILE is missing: what is to be merged into {name}?")
    else:
        base = expanded(name) if "/" in name else None
        if base is None:
            base = modelfile.files_here(_models_folder(app), name)[0]
        stem = modelfile.model_name(base)
        target = base.with_name(modelfile.names_of([base], new or f"{stem}-merged")[0])
        wanted = model_merge.Merge(base=base, adapter=expanded(str(adapter)), target=target)
    with _bar(app, f"checking {wanted.base.name}") as bar:
        digests = model_merge.checked(wanted, expected, bar.show)
    bar = _bar(app, f"merging {wanted.target.stem}")
    done = model_merge.merge(wanted, digests, bar, force=is_assistant or bool(given["force"]))
    if given["as_json"]:
        emit_json(_values(done.added, done.sha256, done.source))
        return
    _say_added(done.added)
    if not is_assistant:
        note(f"Answer from it: clawctl model use {done.added.name}")


@command.command()
@click.argument("name", type=Name("models"))
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_command(Confirmed)
def rm(app: App, name: str, *, yes: bool, as_json: bool) -> None:
    """Remove a model's files; of one that was imported the link, not the other program's file."""
    there = _listed(app)
    folder = _folder_of(there)
    files = modelfile.files_here(folder, name)
    freed = sum(path.lstat().st_size for path in files)
    answers = there is not None and there.default == modelfile.model_name(files[0])
    which = ", from which answers come" if answers else ""
    confirm(f"Remove {', '.join(path.name for path in files)} ({size(freed)}){which}?", yes=yes)
    try:
        with app.running_client() as client:
            client.call(wire.UnloadModel(name=modelfile.model_name(files[0])))
    except ClawError as error:
        if not is_nobody(error) and error.code not in {"not_found", "forbidden"}:
            raise
    gone = modelfile.remove_model(folder, name)
    message = f"removed {', '.join(path.name for path in gone)}"
    emit(Confirmed(message=message), message, as_json=as_json)
    if answers:
        note(f"Answers were to come from it, and now none does. {CHOOSE}")


@command.command()
@click.argument("name", type=Name("models"))
@click.option("--sha256", default="", metavar="HEX", help="The digest that it must have.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_command(Confirmed)
def accept(app: App, name: str, sha256: str, *, yes: bool, as_json: bool) -> None:
    """Take a model's files as they are now for the right ones; else a changed one is not loaded."""
    files = modelfile.files_here(_models_folder(app), name)
    wanted = _digest(sha256)
    with _bar(app, f"checking {name}") as bar:
        digests = modelfile.checked_digests(files[0], wanted, bar.show)
    before = [modelfile.noted_pin(path) for path in files]
    if [pin.sha256 if pin else "" for pin in before] == digests:
        message = f"{name} is the one that was pinned: {digests[0]}"
    else:
        for path, pin, digest in zip(files, before, digests, strict=True):
            note(f"{path.name}: pinned {pin.sha256 if pin else 'nothing'}, now {digest}")
        confirm(f"Load {name} as it is now?", yes=yes or bool(wanted))
        message = f"{name} is pinned as it is now: {digests[0]}"
    source = next((pin.source for pin in before if pin), "")
    modelfile.pin_parts(files[0], digests, source)
    emit(Confirmed(message=message), message, as_json=as_json)


@command.command()
@click.argument("name", type=Name("models"))
@json_command(wire.LoadedModel)
def load(app: App, name: str, *, as_json: bool) -> None:
    """Load a model now rather than with its first request."""
    with app.client() as client:
        bar = ProgressLine(f"loading {name}", unit="bytes", quiet=app.is_quiet)
        model = call(client, wire.LoadModel(name=name), bar, limit_s=LOAD_LIMIT_S)
    emit(
        model,
        f"loaded {model.name}: {_billions(model.parameters)} parameters, context "
        f"{model.context_size}, pid {model.pid}",
        as_json=as_json,
    )


@command.command()
@click.argument("name", type=Name("loaded_models"))
@json_command(Confirmed)
def unload(app: App, name: str, *, as_json: bool) -> None:
    """Unload a model and free its memory; what it is answering is cancelled."""
    done = app.call(wire.UnloadModel(name=name))
    emit(Confirmed(message=done.message), done.message, as_json=as_json)


@command.command()
@json_command(list[wire.LoadedModel])
def ps(app: App, *, as_json: bool) -> None:
    """List the models that are loaded, the one used last first."""
    models = app.call(wire.ListLoadedModels())
    if as_json:
        emit_json(models.items)
        return
    headers = (
        *("NAME", "STATE", "RUNNING", "CONTEXT", "SIZE", "TOKENS", "LAST USED"),
        *("PID", "GUESSED", "WARM", "FENCE"),
    )
    rows = [_row(model) for model in models.items]
    narrow = headers[:7], [row[:7] for row in rows]
    show_table(headers, rows, nothing="No model is loaded.", narrow=narrow)
    for model in models.items:
        for remark in model.template_notes:
            note(visible_line(f"the chat template of {model.name}: {remark}"))


def _add(
    app: App, file: Path, options: modelfile.AddOptions, *, sha256: str, as_json: bool
) -> None:
    with _bar(app, f"checking {file.name}") as check, _bar(app, f"copying {file.name}") as bar:
        digests = modelfile.checked_digests(file, _digest(sha256), check.show)
        added = modelfile.add_model(file, _models_folder(app), options, bar.show)
    modelfile.pin_parts(added.path, digests, str(file.absolute()))
    if as_json:
        emit_json(_values(added, digests[0], str(file.absolute())))
    else:
        _say_added(added)


def _import_values(found: "ForeignModel", added: modelfile.Added | None) -> ModelFound:
    return mirror(ModelFound, found, path=str(found.path), how=added.how if added else "")


def _tool_calls(model: wire.ModelDetail) -> str:
    if model.embeddings:
        return "none: it makes vectors"
    family = model.template_family or "no chat template"
    return family if model.tools else f"{family}; its template takes no tools, they are described"


def _bar(app: App, what: str) -> ProgressLine:
    return ProgressLine(what, unit="bytes", quiet=app.is_quiet, is_long=True)


def _digest(text: str) -> str:
    """Return a digest as it is compared.

    Raises:
        UsageError: it is none.
    """
    digest = text.lower().removeprefix("sha256:")
    if digest and (len(digest) != 64 or set(digest) - set("0123456789abcdef")):
        raise click.UsageError(
            f"--sha256 {text!r} is not a SHA-256: expected 64 hexadecimal digits"
        )
    return digest


def _values(added: modelfile.Added, sha256: str, source: str) -> ModelAdded:
    return mirror(ModelAdded, added, path=str(added.path), sha256=sha256, source=source)


def _models_folder(app: App) -> Path:
    """Return the folder of the daemon that answers, or of the own home when none runs."""
    return _folder_of(_listed(app))


def _folder_of(there: wire.ModelList | None) -> Path:
    return layout().models if there is None else Path(there.folder)


def _listed(app: App) -> wire.ModelList | None:
    """Return what the daemon that answers has, None when none runs."""
    try:
        with app.running_client() as client:
            there = client.call(wire.ListModels())
    except ClawError as error:
        if app.socket or not is_nobody(error):
            raise
        return None
    if "\0" in there.folder or not there.folder.startswith("/"):
        raise ProtocolError(f"the daemon names no folder for models: {there.folder!r}")
    return there


def _say_added(added: modelfile.Added) -> None:
    how = {"linked": "hard-linked", "symlinked": "linked by name"}.get(added.how, added.how)
    say(f"{added.name} ({size(added.size_bytes)}) is in {added.path.parent}: {how}")
    if added.replaced:
        note(f"If it is loaded, the old one stays until: clawctl model unload {added.name}")


def _row(model: wire.LoadedModel) -> tuple[object, ...]:
    return (
        model.name,
        model.state,
        model.running,
        model.context_size or "-",
        size(model.size_bytes) if model.size_bytes else "-",
        model.completion_tokens,
        model.last_used_at[:19],
        model.pid or "-",
        _share(model.accepted_tokens, model.completion_tokens),
        warm_text(model),
        model.fence or "-",
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _billions(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 10**9 else f"{count / 1e6:.1f} M"
