"""Sets a home up: folders and a commented config. What is there already is kept."""

import os
import stat
from pathlib import Path

from clawd.config.render import render_default_config
from clawd.errors import ConfigError
from clawd.paths import Layout


def initialise(layout: Layout) -> list[str]:
    """Create home, config and workspace; return a sentence for each thing made or kept.

    Raises:
        ConfigError: something cannot be created, or the home is another user's.
    """
    try:
        return [
            _private_folder(layout.home),
            *(_folder(folder) for folder in (layout.models, layout.cache)),
            _config(layout),
            _folder(layout.workspace),
        ]
    except OSError as error:
        raise ConfigError(
            f"cannot set up {layout.home}: {error}",
            hint="Choose another home with CLAWD_HOME, or correct the permissions.",
        ) from error


def _private_folder(folder: Path) -> str:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        about = folder.stat()
        if not stat.S_ISDIR(about.st_mode):
            raise
        if about.st_uid not in {os.geteuid(), 0} and os.geteuid() != 0:
            raise ConfigError(
                f"{folder} belongs to uid {about.st_uid}, not to you (uid {os.geteuid()})",
                hint="Choose another home with CLAWD_HOME.",
            ) from None
        if about.st_mode & 0o077 and about.st_uid == os.geteuid():
            folder.chmod(0o700)
            return f"closed {folder} to others (0700)"
        return f"kept {folder}"
    return f"created {folder} (0700)"


def _folder(folder: Path) -> str:
    if folder.is_dir():
        return f"kept {folder}"
    folder.mkdir(parents=True)
    return f"created {folder}"


def _config(layout: Layout) -> str:
    text = render_default_config(layout)
    layout.config.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(layout.config, flags, 0o640 if layout.is_system else 0o600)
    except FileExistsError:
        return f"kept {layout.config}"
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return f"wrote {layout.config}"
