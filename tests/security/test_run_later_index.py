"""Which repositories an index names, in every version that git writes."""

import subprocess
from pathlib import Path

from clawd.security.run_later_index import gitlinks
from tests.support.rows import each_row

_SHORT, _LONG = "1" * 40, "1" * 64


def _git(folder: Path, *words: str, text: str = "") -> None:
    subprocess.run(["git", *words], cwd=folder, input=text, text=True, check=True)


@each_row("version", ["2", "3", "4"])
@each_row(("kind", "name"), [("sha1", _SHORT), ("sha256", _LONG)])
def test_repositories_in_an_index_are_found(
    tmp_path: Path, version: str, kind: str, name: str
) -> None:
    _git(tmp_path, "init", "-q", f"--object-format={kind}")
    links = {"node_modules/e", "node_modules/éé", "z" * 5000, "a/b"}
    files = [f"{'f' * (number % 40)}{number}" for number in range(60)]
    lines = [f"160000 {name} 0\t{link}" for link in links]
    lines += [f"100644 {name} 0\t{file}" for file in files]
    _git(tmp_path, "update-index", "--add", "--index-info", text="\n".join(lines) + "\n")
    if version == "3":
        (tmp_path / "new").touch()
        _git(tmp_path, "add", "--intent-to-add", "new")
    _git(tmp_path, "update-index", "--force-write-index", "--index-version", version)
    index = (tmp_path / ".git/index").read_bytes()
    assert index[7] == int(version)
    assert gitlinks(index) == links
    assert gitlinks(index[: len(index) // 2]) <= links


@each_row("index", [b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\1\0\0\xe0\0", b"x\0\0\xe0\0"])
def test_what_is_no_index_names_none(index: bytes) -> None:
    assert not gitlinks(index)
