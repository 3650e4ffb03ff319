"""`clawctl model`: the models of this machine."""

from pathlib import Path

import click

from clawctl.app import App, json_option, pass_app
from clawctl.client import is_nobody
from clawctl.modelfile import Added, AddOptions, add_model
from clawctl.progress import Progress, call
from clawctl.render import emit_json, note, say, show_table, size
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.wire.methods import ListLoadedModels, ListModels, LoadModel, UnloadModel
from clawd.wire.reports import LoadedModel

LOAD_LIMIT_S = 3_600.0


@click.group()
def command() -> None:
    """List, add, load and unload the models of this machine."""


@command.command("list")
@json_option
@pass_app
def list_(app: App, *, as_json: bool) -> None:
    """List the models that are there, and which of them are loaded."""
    with app.client() as client:
        models = client.call(ListModels())
    if as_json:
        emit_json(models)
        return
    show_table(
        ("NAME", "SIZE", "LOADED", "PROFILE"),
        [(m.name, size(m.size_bytes), m.state or "no", m.profile or "-") for m in models.items],
    )
    note(f"Files are in {models.folder}")


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", default="", metavar="NAME", help="Its name there; else the file's own.")
@click.option("--force", is_flag=True, help="Overwrite a model of that name.")
@click.option("--copy", is_flag=True, help="Copy it, also where a hard link would do.")
@json_option
@pass_app
def add(app: App, file: Path, name: str, *, force: bool, copy: bool, as_json: bool) -> None:
    """Put a GGUF file into the folder of models: linked where possible, else copied.

    Of a split model (…-00001-of-00003.gguf) any part stands for all of them.
    """
    options = AddOptions(name=name, force=force, copy=copy)
    with Progress(f"copying {file.name}", unit="bytes", quiet=app.is_quiet) as bar:
        added = add_model(file, _models_folder(app), options, bar.show)
    if as_json:
        emit_json(
            {
                "name": added.name,
                "path": str(added.path),
                "size_bytes": added.size_bytes,
                "how": added.how,
                "replaced": added.replaced,
            }
        )
    else:
        _say_added(added)


@command.command()
@click.argument("name")
@json_option
@pass_app
def load(app: App, name: str, *, as_json: bool) -> None:
    """Load a model now rather than with its first request."""
    with app.client() as client:
        bar = Progress(f"loading {name}", unit="bytes", quiet=app.is_quiet)
        model = call(client, LoadModel(name=name), bar, limit_s=LOAD_LIMIT_S)
    if as_json:
        emit_json(model)
        return
    say(
        f"loaded {model.name}: {_billions(model.parameters)} parameters, context "
        f"{model.context_size}, pid {model.pid}"
    )


@command.command()
@click.argument("name")
@json_option
@pass_app
def unload(app: App, name: str, *, as_json: bool) -> None:
    """Unload a model and free its memory; what it is answering is cancelled."""
    with app.client() as client:
        done = client.call(UnloadModel(name=name))
    if as_json:
        emit_json({"ok": True, "message": done.message})
    else:
        say(done.message)


@command.command()
@json_option
@pass_app
def ps(app: App, *, as_json: bool) -> None:
    """List the models that are loaded, the one used last first."""
    with app.client() as client:
        models = client.call(ListLoadedModels())
    if as_json:
        emit_json(models.items)
        return
    show_table(
        (
            "NAME",
            "PID",
            "STATE",
            "RUNNING",
            "CONTEXT",
            "SIZE",
            "TOKENS",
            "GUESSED",
            "FENCE",
            "LAST USED",
        ),
        [_row(model) for model in models.items],
        nothing="No model is loaded.",
    )


def _models_folder(app: App) -> Path:
    """Return the folder of the daemon that answers, or of the own home when none runs."""
    try:
        with app.running_client() as client:
            return Path(client.call(ListModels()).folder)
    except ClawError as error:
        if app.socket or not is_nobody(error):
            raise
    return layout().models


def _say_added(added: Added) -> None:
    how = {"linked": "hard-linked", "copied": "copied"}.get(added.how, added.how)
    say(f"{added.name} ({size(added.size_bytes)}) is in {added.path.parent}: {how}")
    if added.replaced:
        note(f"If it is loaded, the old one stays until: clawctl model unload {added.name}")


def _row(model: LoadedModel) -> tuple[object, ...]:
    return (
        model.name,
        model.pid or "-",
        model.state,
        model.running,
        model.context_size or "-",
        size(model.size_bytes) if model.size_bytes else "-",
        model.completion_tokens,
        _share(model.accepted_tokens, model.completion_tokens),
        model.fence or "-",
        model.last_used_at,
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _billions(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 10**9 else f"{count / 1e6:.1f} M"
