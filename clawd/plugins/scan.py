"""What a person should know of a plugin before it is installed: secrets in it, and its reach."""

import re
from collections.abc import Iterator

from clawd.plugins.files import PluginFile, Tree
from clawd.plugins.manifest import PluginManifest
from clawd.wire.hosts import ANY_HOST
from clawd.wire.secrets import find_secrets

MAX_FINDINGS = 50

_SECRET_FILES = re.compile(
    r"(?i)(.*/)?(\.env(\..*)?|\.netrc|\.pgpass|\.npmrc|\.pypirc|id_(rsa|dsa|ecdsa|ed25519)"
    r"|.*\.(pem|key|p12|pfx|kdbx|keystore)|credentials(\..*)?|secrets?\..*)"
)
_REACH = {
    "workspace-read": "it reads all files of the workspace of a call",
    "workspace-write": "it reads and changes all files of the workspace of a call",
}


def secrets_in(tree: Tree) -> tuple[str, ...]:
    """Return where the files hold what looks like a secret; never the secret itself."""
    found = []
    for each in tree.files:
        for finding in _secrets_of(each):
            found.append(finding)
            if len(found) >= MAX_FINDINGS:
                return (*found, "and perhaps more")
    return tuple(found)


def reach_of(manifest: PluginManifest) -> tuple[str, ...]:
    """Say what a plugin may do, a sentence for each capability."""
    told = [_REACH[each] for each in manifest.capabilities if each in _REACH]
    reached = manifest.reached
    if ANY_HOST in reached:
        told.append("it reaches every public host, by name and through the egress proxy")
    elif reached:
        told.append(f"it reaches {', '.join(reached)} and no other host unasked")
    else:
        told.append("it has no network")
    if not {"workspace-read", "workspace-write"} & set(manifest.capabilities):
        told.append("it sees no file of yours")
    low = [each.name for each in manifest.tools if each.risk == "low"]
    if low:
        told.append(f"unasked, as low risk, runs: {', '.join(low)}")
    return tuple(told)


def _secrets_of(file: PluginFile) -> Iterator[str]:
    if file.data is None:
        return
    if _SECRET_FILES.fullmatch(file.path):
        yield f"{file.path}: is named like a file of secrets"
    text = file.data.decode("utf-8", "replace")
    line, counted = 1, 0
    for secret in find_secrets(text):
        line, counted = line + text.count("\n", counted, secret.start), secret.start
        yield f"{file.path}:{line}: looks like {secret.kind}"
