"""`clawctl config edit`, `set` and `unset`: a config is replaced only by one that is valid.

A config that a person has edited is theirs: comments, order and spelling stay as they are.
"""

import contextlib
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from clawctl.app import App, C, Exit, config_file_option, json_command
from clawctl.client import is_nobody
from clawctl.render import Palette, emit, note
from clawd.errors import ClawError, ConfigError, ForbiddenError, NotFoundError
from clawd.paths import layout
from clawd.wire.daemon import Reload
from clawd.wire.safe_text import terminal_safe

_SECTION = re.compile(r"^\s*\[")
_MAX_LINES = 2_000  # of one value

_Flat = dict[tuple[str, ...], Any]


def with_toml(text: str, key: str, value: str) -> str:
    """Return the text with a key set to a value that is written as TOML; a comment behind it stays.

    Raises:
        ConfigError: the key or the value is none, or the text is written in a way that cannot be
            changed in one place.
    """
    wanted, data = _names(key), _toml(f"value = {value}")
    if data is None or set(data) != {"value"}:
        raise ConfigError(
            f"{value!r} is not a TOML value", hint='As in: 5, true, "text", ["a", "b"]'
        )
    lines = text.splitlines(keepends=True)
    there = next((each for each in _assignments(lines) if each.names == wanted), None)
    if there is not None:
        left, _, right = "".join(lines[there.first : there.last]).partition("=")
        comment = _comment_of(right)
        new = f"{left.rstrip()} = {value}{comment and f'  {comment}'}\n"
        lines[there.first : there.last] = [new]
    else:
        lines = _with_line(lines, wanted, value)
    return _as_meant(text, "".join(lines), wanted, data["value"])


def without(text: str, key: str) -> str:
    """Return the text without a key, so that its built-in value is in force.

    Raises:
        ConfigError: the key is none, or the text is written in a way that cannot be changed in
            one place.
    """
    wanted = _names(key)
    lines = text.splitlines(keepends=True)
    for each in reversed(list(_assignments(lines))):
        if each.names == wanted:
            del lines[each.first : each.last]
    return _as_meant(text, "".join(lines), wanted, None)


class _Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the text, whole, and its lines: from `first` to before `last`."""

    names: tuple[str, ...]
    first: int
    last: int


def _names(key: str) -> tuple[str, ...]:
    """Return the names of a dotted key as TOML reads them.

    Raises:
        ConfigError: it is none.
    """
    data = _toml(f"{key} = 0") if "=" not in key and "\n" not in key else None
    if data is None:
        raise ConfigError(f"{key!r} is not a key", hint="As in: security.autonomy")
    return _path_of(data)


def _toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _path_of(data: object) -> tuple[str, ...]:
    names: list[str] = []
    while isinstance(data, dict) and len(data) == 1:
        ((name, data),) = data.items()
        names.append(name)
    return tuple(names)


def _assignments(lines: list[str]) -> Iterator[_Assignment]:
    """Yield every key that is set; what a value spans is no key and no heading."""
    section: tuple[str, ...] | None = ()
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        if line.startswith("["):
            # Members of a list of tables have no key of their own.
            heading = None if line.startswith("[[") else _toml(line)
            section = None if heading is None else _path_of(heading)
        elif line and not line.startswith("#"):
            last = _end_of(lines, number)
            found = _toml(f"{line.partition('=')[0]} = 0")
            if found is not None and section is not None:
                yield _Assignment(names=(*section, *_path_of(found)), first=number, last=last)
            number = last
            continue
        number += 1


def _end_of(lines: list[str], first: int) -> int:
    """Return the number of the line behind an assignment."""
    for last in range(first + 1, min(first + _MAX_LINES, len(lines)) + 1):
        if _toml("".join(lines[first:last])) is not None:
            return last
    return first + 1


def _comment_of(value: str) -> str:
    """Return the comment behind a value, of its last line."""
    last = value.rstrip("\n").rpartition("\n")[2]
    start = len(value.rstrip("\n")) - len(last)
    for found in re.finditer("#", last):
        if _toml(f"value = {value[: start + found.start()]}") is not None:
            return last[found.start() :]
    return ""


def _with_line(lines: list[str], wanted: tuple[str, ...], value: str) -> list[str]:
    """Return the lines with one more: behind the comment that shows the key, else on top."""
    *section, name = wanted
    head = ".".join(map(_key, section))
    first, last = _bounds(lines, head)
    new = f"{_key(name)} = {value}\n"
    if head and first == last == len(lines):
        end = "" if not lines or lines[-1].endswith("\n") else "\n"
        return [*lines, f"{end}\n[{head}]\n", new]
    shown = re.compile(rf"^\s*#\s*{re.escape(name)}\s*=")
    at = next((n + 1 for n in range(first, last) if shown.match(lines[n])), first)
    end = "" if not at or lines[at - 1].endswith("\n") else "\n"
    return [*lines[:at], f"{end}{new}", *lines[at:]]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def _as_meant(before: str, after: str, key: tuple[str, ...], value: object) -> str:
    """Return the new text, if it differs from the old one in this key and in nothing else.

    Raises:
        ConfigError: it does not; `value` None is for a key that is not set.
    """
    old, new = _toml(before), _toml(after)
    if old is None:
        raise ConfigError("the config is not TOML", hint="Correct it: clawctl config edit")
    if new is None or _flat(new) != {**_flat(old, without=key), **_flat_value(key, value)}:
        raise ConfigError(
            f"{'.'.join(key)} is written in a way that is left to you",
            hint="Change it yourself: clawctl config edit",
        )
    return after


def _flat(data: object, at: tuple[str, ...] = (), *, without: tuple[str, ...] = ()) -> _Flat:
    if at and at == without:
        return {}
    if not isinstance(data, dict):
        return {at: data}
    flat: _Flat = {}
    for name, value in data.items():
        flat |= _flat(value, (*at, name), without=without)
    return flat


def _flat_value(key: tuple[str, ...], value: object) -> _Flat:
    return {} if value is None else _flat(value, key)


def with_section(text: str, name: str, values: Mapping[str, Any]) -> str:
    """Return the text with a section added to its end; values that are empty are left out."""
    filled = [(key, value) for key, value in values.items() if value not in ("", (), {})]
    lines = [f"\n[{name}]", *(f"{key} = {toml(value)}" for key, value in filled)]
    end = "" if not text or text.endswith("\n") else "\n"
    return text + end + "\n".join(lines) + "\n"


def without_section(text: str, *names: str) -> str:
    """Return the text without a section, `"mcp", "servers", "files"`, and those within it.

    Raises:
        ConfigError: there is none, or it is written in a way that cannot be taken out.
    """
    kept: list[str] = []
    is_inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            heading = _toml(line)
            is_inside = heading is not None and _path_of(heading)[: len(names)] == names
        if not is_inside:
            kept.append(line)
    old, new = _toml(text), _toml("".join(kept))
    rest = {at: value for at, value in _flat(old or {}).items() if at[: len(names)] != names}
    if new is None or len(kept) == len(text.splitlines()) or _flat(new) != rest:
        raise ConfigError(
            f"[{'.'.join(names)}] is not in the config as a section of its own",
            hint="Take it out yourself: clawctl config edit",
        )
    return "".join(kept)


def has_section(text: str, name: str) -> bool:
    """Return whether a section is written in the text, not counting comments."""
    return re.search(rf"^\s*\[\s*{re.escape(name)}\s*\]", text, re.MULTILINE) is not None


def toml(value: Any) -> str:
    """Return a text, a flag, a list of texts or a table of texts as TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {quoted(each)}' for name, each in value.items())} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(quoted, value))}]"
    return quoted(value) if isinstance(value, str) else str(value).lower()


def quoted(text: str) -> str:
    """Return the text as a TOML string."""
    # A JSON string is a TOML string, but for DEL.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _bounds(lines: list[str], section: str) -> tuple[int, int]:
    """Return the lines of a section, without its heading; of "", those before the first."""
    heads = [number for number, line in enumerate(lines) if _SECTION.match(line)]
    ends = [*heads[1:], len(lines)] if heads else []
    if not section:
        return 0, heads[0] if heads else len(lines)
    heading = re.compile(rf"^\s*\[\s*{re.escape(section)}\s*\]")
    for head, end in zip(heads, ends, strict=True):
        if heading.match(lines[head]):
            return head + 1, end
    return len(lines), len(lines)


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


def _changes(command: C) -> Callable[..., Any]:
    """Add what the commands take that change a config."""
    no_reload = click.option("--no-reload", is_flag=True, help="Leave a running daemon as it is.")
    return config_file_option(no_reload(json_command(Edited)(command)))


@click.command()
@_changes
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
    return _report(done, as_json=as_json)


@click.command("set")
@click.argument("key")
@click.argument("value")
@_changes
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
    texts = [with_toml(before.decode(), key, form).encode() for form in forms]
    after = next((text for text in texts if not trial(path, text)), texts[-1])
    done = put(app, path, before, after, wanted=not no_reload and file is None)
    return _report(done, as_json=as_json)


@click.command()
@click.argument("key")
@_changes
def unset(app: App, /, key: str, file: str | None, *, no_reload: bool, as_json: bool) -> int:
    """Take KEY out of the config, so that its built-in value is in force."""
    path = config_of(file)
    before = read_config(path)
    after = without(before.decode(), key).encode()
    done = put(app, path, before, after, wanted=not no_reload and file is None)
    return _report(done, as_json=as_json)


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
    """Put a new text in the place of a config; if `wanted` a daemon that runs reads it.

    Raises:
        ConfigError: it is not valid; the config is as it was.
    """
    if after == before:
        message = "Nothing was changed."
        return Edited(path=str(path), changed=False, reloaded=False, message=message)
    if problems := trial(path, after):
        listed = "\n".join(f"  {each}" for each in problems)
        raise ConfigError(f"{path} was left as it is:\n{listed}", problems=tuple(problems))
    replace(path, before, after)
    return _reload(app, path, wanted=wanted)


def _report(done: Edited, *, as_json: bool) -> int:
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


def _reload(app: App, path: Path, *, wanted: bool) -> Edited:
    message = f"{path} is written."
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
    return Edited(
        path=str(path), changed=True, reloaded=True, message=f"{message} The daemon {done.message}."
    )
