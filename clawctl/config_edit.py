"""`clawctl config edit`, `set` and `unset`: a config is replaced only by one that is valid."""

import contextlib
import os
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import click
import msgspec

from clawctl.app import App, Exit, json_command
from clawctl.client import is_nobody
from clawctl.config_text import quoted, with_toml, without
from clawctl.render import Palette, emit, note
from clawd.errors import ClawError, ConfigError, ForbiddenError, NotFoundError
from clawd.paths import layout
from clawd.wire.daemon import Reload
from clawd.wire.safe_text import terminal_safe

EDITED = "config.toml"


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an edit: `reloaded` tells whether a daemon took it over."""

    path: str
    changed: bool
    reloaded: bool
    message: str


class _Checked(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool = False
    message: str = ""
    problems: tuple[str, ...] = ()


_FILE = click.option(
    "--file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Another config file than the usual one.",
)


@click.command()
@_FILE
@click.option("--no-reload", is_flag=True, help="Leave a running daemon as it is.")
@json_command
def edit(app: App, file: str | None, *, no_reload: bool, as_json: bool) -> int:
    """Edit the config in $VISUAL or $EDITOR; it is replaced only when it is valid.

    Every problem is named, and the editor can be opened again on the same text. A running daemon
    then reads the config again.
    """
    path = config_of(file)
    before = read_config(path)
    folder = Path(tempfile.mkdtemp(prefix="clawctl-"))
    try:
        after = _edited(folder / EDITED, path, before)
        if after == before:
            message = "Nothing was changed."
            done = Edited(path=str(path), changed=False, reloaded=False, message=message)
        else:
            replace(path, before, after, spare=folder / EDITED)
            done = _reload(app, path, wanted=not no_reload and file is None)
    except ConfigError as error:
        raise _kept(error, folder, path) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _tell(done, as_json=as_json)


@click.command("set")
@click.argument("key")
@click.argument("value")
@_FILE
@click.option("--no-reload", is_flag=True, help="Leave a running daemon as it is.")
@json_command
def set_(
    app: App, /, key: str, value: str, file: str | None, *, no_reload: bool, as_json: bool
) -> int:
    """Set KEY, as security.autonomy, to VALUE; comments stay, and nothing invalid is written.

    VALUE is TOML (5, true, ["a", "b"]); what is none, or what the key takes as text, is text. A
    running daemon then reads the config again.
    """
    path = config_of(file)
    before = read_config(path)
    # By what the key takes: 4 is a number here and a model's name there.
    forms = [quoted(value)] if _is_text(value) else [value, quoted(value)]
    problems: list[str] = []
    for form in forms:
        after = with_toml(before.decode(), key, form).encode()
        problems = trial(path, after)
        if not problems:
            done = put(app, path, before, after, wanted=not no_reload and file is None)
            return _tell(done, as_json=as_json)
    raise ConfigError(
        f"{path} was left as it is:\n" + "\n".join(f"  {each}" for each in problems),
        problems=tuple(problems),
    )


@click.command()
@click.argument("key")
@_FILE
@click.option("--no-reload", is_flag=True, help="Leave a running daemon as it is.")
@json_command
def unset(app: App, /, key: str, file: str | None, *, no_reload: bool, as_json: bool) -> int:
    """Take KEY out of the config, so that its built-in value is in force."""
    path = config_of(file)
    before = read_config(path)
    after = without(before.decode(), key).encode()
    if problems := trial(path, after):
        raise ConfigError(f"{path} was left as it is: {problems[0]}", problems=tuple(problems))
    done = put(app, path, before, after, wanted=not no_reload and file is None)
    return _tell(done, as_json=as_json)


def _is_text(value: str) -> bool:
    try:
        return set(tomllib.loads(f"value = {value}")) != {"value"}
    except tomllib.TOMLDecodeError:
        return True


def config_of(file: str | None) -> Path:
    """Return the config to change; the usual one is made where it is not there yet.

    Raises:
        ConfigError: it cannot be made.
    """
    if file is not None:
        return Path(file).absolute()
    path = layout().config
    if not path.exists():
        from clawctl.daemon import run_clawd

        made = run_clawd(["--init"], capture=True)
        if made.returncode != 0:
            raise ConfigError(made.stderr.strip() or "clawd --init failed")
        note(f"● there was no {path}: one with every key in it was made")
    return path


def trial(path: Path, text: bytes) -> list[str]:
    """Return what is wrong with a new text of a config, tried beside it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.trial")
    try:
        beside.touch(mode=0o600)
        beside.write_bytes(text)
        return problems_of(beside, path)
    except OSError as error:
        raise ForbiddenError(
            f"{beside} cannot be written: {error.strerror or error}",
            hint="Change the config as its owner or as root: sudo clawctl config …",
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def put(app: App, path: Path, before: bytes, after: bytes, *, wanted: bool) -> Edited:
    """Put a new text, which is valid, in the place of a config; if `wanted` a daemon reads it."""
    if after == before:
        message = "Nothing was changed."
        return Edited(path=str(path), changed=False, reloaded=False, message=message)
    replace(path, before, after)
    return _reload(app, path, wanted=wanted)


def _tell(done: Edited, *, as_json: bool) -> int:
    emit(done, done.message, as_json=as_json)
    return Exit.DONE


def replace(path: Path, before: bytes, after: bytes, *, spare: Path | None = None) -> None:
    """Put a new text in the place of a file in one step; mode and owner stay.

    Raises:
        ConfigError: somebody changed the file meanwhile.
        ForbiddenError: it cannot be written.
    """
    try:
        if path.read_bytes() != before:
            raise ConfigError(
                f"{path} was changed by somebody else meanwhile; it was left as it is",
                hint="Edit it once more.",
            )
        about = path.stat()
        real = path.resolve()
        fresh = real.with_name(f".{real.name}.{os.getpid()}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(after)
                file.flush()
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), about.st_uid, about.st_gid)
                os.fchmod(file.fileno(), about.st_mode & 0o7777)
                os.fsync(file.fileno())
            fresh.replace(real)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        kept = f" Your text: {spare}" if spare is not None else ""
        raise ForbiddenError(
            f"{path} cannot be replaced: {error.strerror or error}.{kept}",
            hint="Edit it as its owner or as root: sudo clawctl config edit",
        ) from error


def read_config(path: Path) -> bytes:
    """Return the text of a config that may be changed.

    Raises:
        NotFoundError: it is not there.
        ForbiddenError: it cannot be read or written.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no config {path}", hint="Write one with every key in it: clawctl init"
        ) from error
    except OSError as error:
        raise ForbiddenError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="Edit it as its owner or as root: sudo clawctl config edit",
        ) from error
    if not os.access(path, os.W_OK):
        raise ForbiddenError(
            f"{path} may not be written by you",
            hint="Edit it as its owner or as root: sudo clawctl config edit",
        )
    return data


def _edited(copy: Path, path: Path, before: bytes) -> bytes:
    """Let a person edit until the text is valid.

    Raises:
        ConfigError: it is not, and nobody wants to go on.
    """
    copy.touch(mode=0o600)
    copy.write_bytes(before)
    while True:
        try:
            click.edit(filename=str(copy))
        except click.ClickException as error:
            raise ClawError(
                f"the editor failed: {error.message}",
                hint="Name one that works in $VISUAL or $EDITOR, as in: "
                "EDITOR=nano clawctl config edit",
            ) from error
        after = copy.read_bytes()
        if after == before:
            return before
        problems = problems_of(copy, path)
        if not problems:
            return after
        palette = Palette.of(sys.stderr)
        for problem in problems:
            print(f"{palette.red('✗')} {terminal_safe(problem)}", file=sys.stderr)
        if not sys.stdin.isatty() or not _wants_again():
            raise ConfigError(
                f"{path} was left as it is: the new text has {len(problems)} problems",
                problems=tuple(problems),
            )


def _wants_again() -> bool:
    answer = click.prompt("Edit again? [Y/n]", default="", show_default=False, err=True)
    return answer.strip().lower() in {"", "y", "yes"}


def problems_of(file: Path, shown_as: Path) -> list[str]:
    """Return what is wrong with a config, as it will be called; nothing for a valid one."""
    from clawctl.daemon import run_clawd

    done = run_clawd(["--check-config", "--config", str(file), "--json"], capture=True)
    try:
        checked = msgspec.json.decode(done.stdout, type=_Checked)
    except msgspec.DecodeError:
        return [done.stderr.strip() or "clawd could not check it"]
    if checked.ok:
        return []
    found = list(checked.problems) or checked.message.splitlines() or ["it is not valid"]
    return [each.replace(str(file), str(shown_as)) for each in found]


def _kept(error: ConfigError, folder: Path, path: Path) -> ConfigError:
    """Keep the text of an edit that came to nothing beside the config, and say where."""
    kept = path.with_name(f"{path.name}.rejected")
    with contextlib.suppress(OSError):
        descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write((folder / EDITED).read_bytes())
        hint = f"Your text is kept: {kept}. Edit again with: clawctl config edit"
        return ConfigError(error.message, hint=hint, problems=error.problems)
    return error


def changed_to(app: App, text: str) -> Edited:
    """Put a changed text in the place of the usual config, if that is valid.

    Raises:
        ConfigError: it is not; the config is as it was.
        ClawError: it cannot be read or replaced.
    """
    path = layout().config
    before = read_config(path)
    after = text.encode()
    folder = Path(tempfile.mkdtemp(prefix="clawctl-"))
    try:
        copy = folder / EDITED
        copy.touch(mode=0o600)
        copy.write_bytes(after)
        if problems := problems_of(copy, path):
            raise ConfigError(f"{path} was left as it is: {problems[0]}", problems=tuple(problems))
        replace(path, before, after)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _reload(app, path, wanted=True)


def _reload(app: App, path: Path, *, wanted: bool) -> Edited:
    message = f"{path} is replaced."
    if not wanted:
        return Edited(path=str(path), changed=True, reloaded=False, message=message)
    try:
        with app.running_client() as client:
            done = client.call(Reload())
    except ClawError as error:
        if not is_nobody(error):
            note(f"The daemon did not take it over: {error.message}")
        else:
            message += " It is in force when a daemon starts."
        return Edited(path=str(path), changed=True, reloaded=False, message=message)
    return Edited(path=str(path), changed=True, reloaded=True, message=f"{message} {done.message}")
