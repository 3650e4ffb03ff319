"""Where programs keep passwords, tokens and keys: what no command may read, wherever it lies.

Files and folders go by their names; files that hold settings as well, and only sometimes a
password, by what stands in them.
"""

import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

SECRET_FOLDERS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".oci", ".bluemix", ".step", ".password-store",
    ".config/gh", ".config/hub", ".config/glab-cli", ".config/gcloud", ".config/op",
    ".config/doctl", ".config/rclone", ".config/containers", ".config/sops", ".config/age",
    ".config/heroku", ".config/netlify", ".config/flyctl", ".config/google-chrome",
    ".config/chromium", ".config/BraveSoftware", ".config/github-copilot", ".fly", ".wrangler",
    ".vercel", ".cloudflared", ".local/share/keyrings", ".mozilla", ".thunderbird", ".electrum",
    ".bitcoin", ".ethereum", ".continuum", ".config/anaconda", "anaconda-client", ".kaggle",
    ".databricks", ".snowflake", ".claude", ".codex", ".gemini", ".openai", ".clawd",
)  # fmt: skip
"""Folders that are hidden with all that lies in them, by their last names."""

SECRET_FILES = (
    ".npmrc", "npmrc", ".pypirc", ".netrc", "_netrc", ".git-credentials", ".config/git/credentials",
    "credentials", "credentials.toml", "credentials.json", "credentials.db",
    "credentials.tfrc.json", ".credentials", ".credentials.json", ".docker/config.json",
    ".dockercfg", "auth.json", "auth.toml", ".terraformrc", ".vault-token", ".pgpass", ".my.cnf",
    ".mylogin.cnf", ".s3cfg", ".boto", ".databrickscfg", ".snowsql/config", ".smbcredentials",
    ".rclone.conf", "rclone.conf", ".huggingface/token", "huggingface/token", "stored_tokens",
    "settings-security.xml", "hex.config", "pub-credentials.json", "pub-tokens.json",
    "client_secret*.json", "service_account*.json", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
    "id_ecdsa_sk", "id_ed25519_sk", "*.kdbx", ".env", ".env.local", ".htpasswd", ".wgetrc",
    ".curlrc", ".authinfo", ".authinfo.gpg", ".bash_history", ".zsh_history", ".python_history",
    ".node_repl_history", ".psql_history", "application_default_credentials.json",
    "access_tokens.db", ".anaconda-token", ".rpmmacros", ".config/hub",
)  # fmt: skip
"""Files that are hidden, by their last names."""

JUDGED_FILES = (
    "pip.conf", "pip.ini", ".condarc", "condarc", ".mambarc", "gradle.properties", "settings.xml",
    "NuGet.Config", "nuget.config", ".yarnrc", ".yarnrc.yml", "bunfig.toml", ".bunfig.toml",
    ".cargo/config", ".cargo/config.toml", "uv.toml", "poetry.toml", ".bundle/config",
    ".git/config", ".gitconfig", ".pip/pip.conf", "conan.conf", "remotes.json", ".hgrc",
    ".sbt/repositories", ".mavenrc", ".gemrc", "pdm.toml", "spack.yaml", ".config/git/config",
)  # fmt: skip
"""Files of settings that are hidden where a password or token stands in them."""

_JUDGED_BYTES = 1 << 20
_MOST_FILES = 1_000_000
_COMMENT = re.compile(rb"<!--.*?-->|^[ \t]*[#;!].*$", re.DOTALL | re.MULTILINE)
_PASSWORD = re.compile(
    rb"(?i)(pass(word|wd|phrase)?|token|secret|_auth|api[_-]?key|private[_-]?key|credential)"
    rb"[\w.\-]*[\"']?\s*([=:>]|\bvalue=)|://[^/\s:@\"']*:[^/\s@]+@|/t/[\w-]{8,}|://[\w-]{16,}@"
)


class TooManyFilesError(Exception):
    """A folder holds more than can be looked through."""


def is_secret(path: Path) -> bool:
    """Return whether a file or folder is for secrets, by its names and its kind."""
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False
    return _is_named(str(path), _FOLDERS if is_folder else _FILES)


def secrets_beneath(folder: Path) -> Iterator[Path]:
    """Yield the real paths of the secrets in a folder, or of a file that is one.

    What a secret folder holds is not listed; nor are folders behind links.

    Raises:
        TooManyFilesError: there is too much to look through.
    """
    if not folder.is_dir():
        if _is_hidden(str(folder), is_folder=False):
            yield Path(os.path.realpath(folder))
        return
    waiting, count = [str(folder)], 0
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                found = list(entries)
        except OSError:
            continue  # what we cannot list, no command can
        count += len(found)
        if count > _MOST_FILES:
            raise TooManyFilesError(str(folder))
        for entry in found:
            is_folder = entry.is_dir(follow_symlinks=False)
            if (
                entry.name in _NAMES
                or entry.name.startswith(_BEGINNINGS)
                or entry.name[-5:] in _ENDS
            ):
                leads_to_folder = is_folder or (entry.is_symlink() and os.path.isdir(entry.path))  # noqa: PTH112 - a Path for each would cost
                if _is_hidden(entry.path, is_folder=leads_to_folder):
                    yield Path(os.path.realpath(entry.path))
                    continue
            if is_folder and entry.name != "__pycache__":
                waiting.append(entry.path)


def direct_secrets(folder: Path) -> Iterator[Path]:
    """Yield the real paths of the secrets that lie right in a folder: they may be new."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_hidden(entry.path, is_folder=entry.is_dir()):
                    yield Path(os.path.realpath(entry.path))
    except OSError:
        return


def _is_hidden(path: str, *, is_folder: bool) -> bool:
    if is_folder:
        return _is_named(path, _FOLDERS)
    if _is_named(path, _FILES):
        return True
    return _is_named(path, _JUDGED) and _holds_password(path)


def _holds_password(path: str) -> bool:
    """Return whether a password stands in a file; one that cannot be judged counts as if."""
    try:
        about = Path(path).stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > _JUDGED_BYTES:
            return True
        text = Path(path).read_bytes()
    except OSError:
        return True
    return holds_password(text)


def holds_password(text: bytes) -> bool:
    """Return whether a text of settings gives a password or token, outside of comments."""
    return _PASSWORD.search(_COMMENT.sub(b"", text)) is not None


_Names = dict[str, list[tuple[str, ...]]]


def _by_last_name(table: tuple[str, ...]) -> _Names:
    names: _Names = {}
    for row in table:
        *before, last = row.split("/")
        names.setdefault(last, []).append(tuple(before))
    return names


_FOLDERS, _FILES, _JUDGED = map(_by_last_name, (SECRET_FOLDERS, SECRET_FILES, JUDGED_FILES))
_PATTERNS = tuple(row for row in SECRET_FILES if "*" in row)
_NAMES = frozenset((*_FOLDERS, *_FILES, *_JUDGED))
_BEGINNINGS = tuple(row.split("*")[0] for row in _PATTERNS if not row.startswith("*"))
_ENDS = frozenset(row[1:] for row in _PATTERNS if row.startswith("*"))


def _is_named(path: str, table: _Names) -> bool:
    parts = path.split("/")
    found = table.get(parts[-1])
    if found is None:
        return table is _FILES and any(fnmatchcase(parts[-1], each) for each in _PATTERNS)
    return any(not before or tuple(parts[-1 - len(before) : -1]) == before for before in found)
