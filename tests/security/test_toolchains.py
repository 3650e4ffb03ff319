"""What of a person's toolchains a command sees, and what it never reads: real runs."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from clawd.security.sandbox.home import ProjectCaches
from clawd.security.sandbox.plan import DEFAULT_PATH, ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.sandbox.secrets import JUDGED_FILES, SECRET_FILES, SECRET_FOLDERS
from clawd.security.sandbox.toolchains import (
    Wanted,
    find_toolchains,
    git_config_of,
    login_environment,
    package_settings_of,
)
from tests.support.rows import Rows

_SECRET = "tell-nobody-4711"
sandboxed = pytest.mark.sandbox


class Person:
    """A person's home with toolchains, a workspace in it, and a sandbox that shows them."""

    def __init__(self, base: Path, level: str = "bwrap") -> None:
        self.home = base / "ada"
        self.clawd = self.home / ".clawd"
        self.workspace = self.home / "src" / "project"
        self.workspace.mkdir(parents=True)
        self.clawd.mkdir()
        self.level = level
        self.path: list[str] = []

    def program(self, place: str, *, says: str = "", text: str = "") -> Path:
        """Make a program below the home; it prints what it says."""
        made = self.home / place
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text or f'#!/bin/sh\necho {says} "$@"\n')
        made.chmod(0o755)
        return made

    def link(self, place: str, target: str) -> None:
        made = self.home / place
        made.parent.mkdir(parents=True, exist_ok=True)
        made.symlink_to(target)

    def on_path(self, *places: str) -> None:
        self.path += [str(self.home / place) for place in places]

    def log_in(self) -> None:
        """Write the profile that puts the folders on PATH, as installers do."""
        words = ":".join((*self.path, "$PATH"))
        (self.home / ".bash_profile").write_text(f'export PATH="{words}"\n')

    def sandbox(self, wanted: Wanted = "auto") -> Sandbox:
        settings = SandboxSettings(
            home=self.clawd,
            toolchains=wanted,
            person=self.home,
            caches=self.clawd / "cache" / "projects",
            levels=(self.level,),  # type: ignore[arg-type]
        )
        return Sandbox(settings)

    async def sh(
        self, script: str, sandbox: Sandbox | None = None, workspace: Path | None = None
    ) -> ChildResult:
        command = ChildCommand(
            argv=("bash", "-c", script),
            workspace=workspace or self.workspace,
            toolchains=True,
            timeout_s=30,
        )
        return await (sandbox or self.sandbox()).run(command)


@pytest.fixture(params=["bwrap", "landlock"])
def person(request: pytest.FixtureRequest, tmp_path: Path) -> Person:
    return Person(tmp_path, request.param)


def _managers(person: Person) -> None:
    """Make what managers of versions make, as far as programs are found by it."""
    pyenv = person.home / ".pyenv"
    person.program(
        ".pyenv/libexec/pyenv",
        text='#!/usr/bin/env bash\nshift; p=$1; shift; exec "$PYENV_ROOT/versions/'
        '$(cat "$PYENV_ROOT/version")/bin/$p" "$@"\n',
    )
    person.link(".pyenv/bin/pyenv", "../libexec/pyenv")
    (pyenv / "version").write_text("3.99.1\n")
    person.program(".pyenv/versions/3.99.1/bin/snake", says="snake of 3.99.1")
    person.program(
        ".pyenv/shims/snake",
        text='#!/usr/bin/env bash\nexport PYENV_ROOT="${PYENV_ROOT:-$HOME/.pyenv}"\n'
        'exec "$PYENV_ROOT/bin/pyenv" exec "${0##*/}" "$@"\n',
    )
    # nvm: PATH names a version, or a link to it; what is run needs the lib beside it.
    person.program(".nvm/versions/node/v1/lib/node_modules/npx/cli", says="npx of v1")
    person.link(".nvm/versions/node/v1/bin/npx", "../lib/node_modules/npx/cli")
    person.link(".nvm/current", "versions/node/v1")
    # uv, pipx: a link in ~/.local/bin to a tool, whose interpreter is one of theirs.
    person.program(".local/share/uv/python/cp1/bin/python9", says="python9")
    person.link(".local/share/uv/tools/lint/bin/python", "../../../python/cp1/bin/python9")
    interpreter = person.home / ".local/share/uv/tools/lint/bin/python"
    person.program(".local/share/uv/tools/lint/bin/lint", text=f"#!{interpreter}\n")
    person.link(".local/bin/lint", str(person.home / ".local/share/uv/tools/lint/bin/lint"))
    # A script whose interpreter is in an environment of its own, outside of everything.
    person.program("envs/fmt/bin/python", says="python of fmt")
    person.program(".local/bin/fmt", text=f"#!{person.home}/envs/fmt/bin/python\n")
    # cargo and rustup: proxies beside credentials, toolchains elsewhere.
    person.program(".rustup/toolchains/stable/bin/crab", says="crab of stable")
    person.program(
        ".cargo/bin/crab", text='#!/bin/sh\nexec "$HOME/.rustup/toolchains/stable/bin/crab"\n'
    )
    (person.home / ".cargo/credentials.toml").write_text(_SECRET)
    # volta: links of many names to one program, which looks at its own.
    person.program(".volta/bin/shim", text='#!/bin/sh\necho "volta ${0##*/}"\n')
    person.link(".volta/bin/yarn1", "shim")
    # sdkman: current is a link; a home for Java that programs ask for.
    person.program(".sdkman/candidates/java/21/bin/jay", says="jay of 21")
    person.link(".sdkman/candidates/java/current", "21")
    person.program("go/bin/gopher", says="gopher")
    (person.home / "go/src/secret").mkdir(parents=True)
    person.on_path(
        ".cargo/bin", ".pyenv/shims", ".pyenv/bin", ".nvm/current/bin", ".local/bin", ".volta/bin",
        ".sdkman/candidates/java/current/bin", "go/bin",
    )  # fmt: skip
    person.log_in()


_RUNS = {
    "snake -V": "snake of 3.99.1 -V",
    "npx x": "npx of v1 x",
    "lint": "python9",
    "fmt": "python of fmt",
    "crab": "crab of stable",
    "yarn1": "volta yarn1",
    "jay": "jay of 21",
    "gopher": "gopher",
}


@sandboxed
async def test_p2_programs_of_every_manager_run_by_their_names_and_only_read(
    person: Person,
) -> None:
    _managers(person)
    sandbox, rows = person.sandbox(), Rows()
    for words, expected in _RUNS.items():
        with rows.row(words):
            result = await person.sh(words, sandbox)
            assert expected in result.output, result.output
            assert result.exit_code == 0
    for script in (
        'echo x > "$(command -v gopher)"',
        f"echo x > {person.home}/.pyenv/version",
        f"rm -rf {person.home}/.volta/bin/shim && false",
        f"cat {person.home}/.cargo/credentials.toml {person.home}/.bash_profile",
        f"ls {person.home}/go/src {person.home}/.clawd",
    ):
        with rows.row(script):
            result = await person.sh(script, sandbox)
            assert result.exit_code != 0, result.output
            assert _SECRET not in result.output
    rows.check()
    assert (person.home / ".pyenv/version").read_text() == "3.99.1\n"


def test_path_holds_what_is_shown_in_the_order_of_the_person(tmp_path: Path) -> None:
    person = Person(tmp_path)
    _managers(person)
    found = find_toolchains("auto", person=person.home, apart=[person.clawd])
    at_home = [each.removeprefix(f"{person.home}/") for each in found.path]
    assert at_home[:8] == [
        ".cargo/bin", ".pyenv/shims", ".pyenv/bin", ".nvm/versions/node/v1/bin", ".local/bin",
        ".volta/bin", ".sdkman/candidates/java/21/bin", "go/bin",
    ]  # fmt: skip
    assert {os.path.realpath(each) for each in DEFAULT_PATH.split(":")} <= {
        os.path.realpath(each) for each in found.path
    }
    shown = {str(each.relative_to(person.home)) for each in found.shown}
    assert shown == {
        ".cargo/bin", ".pyenv", ".nvm/versions/node/v1", ".local/bin", ".local/share/uv/tools",
        ".local/share/uv/python", "envs/fmt", ".rustup/toolchains", ".volta",
        ".sdkman/candidates/java/21", "go/bin",
    }  # fmt: skip


def test_no_home_and_no_place_of_secrets_is_a_prefix(tmp_path: Path) -> None:
    """Rows: a folder on PATH, and what is shown for it."""
    person = Person(tmp_path)
    home = person.home
    for name in (".docker", ".tools", ".aws/bin", "bin", ".clawd/bin", "kept/bin"):
        (home / name).mkdir(parents=True, exist_ok=True)
    for name in (".docker/bin/d", ".tools/bin/t", ".tools/.netrc", "deep/a/bin/a", "deep/a/.aws/x"):
        person.program(name, says=name)
    (home / "up").symlink_to("..")
    rows, expected = Rows(), {
        "bin": ["bin"],
        ".docker/bin": [".docker/bin"],
        ".tools/bin": [".tools/bin"],
        "deep/a/bin": ["deep/a/bin"],
        ".aws/bin": [],
        ".clawd/bin": [],
        "kept/bin": [],
        ".": [],
        "up": [],
        "src/../.aws/bin": [],
    }  # fmt: skip
    for place, shown in expected.items():
        with rows.row(place):
            found = find_toolchains(
                "auto",
                person=home,
                apart=[person.clawd, home / "kept"],
                environ={"PATH": f"{home}/{place}"},
            )
            assert [str(each.relative_to(home)) for each in found.shown] == shown
            assert bool(found.left_out) == (not shown)
    for named in (home, home / ".ssh", Path("/etc"), Path("/proc/self"), tmp_path / "gone"):
        with rows.row(named):
            (home / ".ssh").mkdir(exist_ok=True)
            found = find_toolchains((named,), person=home, apart=[person.clawd])
            assert (found.shown, len(found.left_out)) == ((), 1)
    rows.check()


def _planted(prefix: Path) -> Iterable[Path]:
    """Make a secret of every kind, each in a folder of its own below a prefix."""
    for number, row in enumerate(SECRET_FOLDERS):
        made = prefix / f"folder{number}" / row / "inner" / "token"
        yield _written(made, _SECRET)
    for number, row in enumerate(SECRET_FILES):
        yield _written(prefix / f"file{number}" / row.replace("*", "of-ada"), _SECRET)
    texts = (
        "password = {}",
        "_authToken={}",
        "index-url = https://ada:{}@example.org/",
        "TOKEN: {}",
    )
    for number, row in enumerate(JUDGED_FILES):
        text = texts[number % len(texts)].format(_SECRET)
        if row.endswith(".xml"):
            text = f"<!-- a comment --><server><password>{_SECRET}</password></server>"
        yield _written(prefix / f"judged{number}" / row, text)


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@sandboxed
async def test_no_credentials_below_a_toolchain_can_be_read_by_any_spelling(
    person: Person,
) -> None:
    person.program("tool/bin/hello", says="hello")
    prefix = person.home / "tool"
    planted = list(_planted(prefix))
    assert len(planted) >= 60
    for number, path in enumerate(planted):
        (prefix / f"link{number}").symlink_to(os.path.relpath(path, prefix))
        (person.workspace / f"link{number}").symlink_to(path)
    (person.home / "tool" / "pip.conf").write_text("[global]\ntimeout = 7  # no password\n")
    sandbox = person.sandbox((prefix,))
    # A credential that was made after the toolchains were looked for.
    await sandbox.toolchains()
    _written(prefix / ".netrc", _SECRET)
    names = "\n".join(str(path) for path in planted)
    (person.workspace / "names").write_text(f"{names}\n")
    script = (
        "hello\n"
        'while read -r n; do cat "$n" "/proc/self/root$n" "${n%/*}/./${n##*/}" '
        '"${n%/*}/../${n#"${n%/*/*}"/}"; done < names\n'
        f"cat link* {prefix}/link* ~/tool/link* {prefix}/.netrc {prefix}/pip.conf\n"
        f"cd {prefix} && cat link* */* */*/* .netrc; grep -r {_SECRET[:8]} . ~/tool\n"
        f"find {prefix} -type f -exec cat {{}} +; tar c {prefix} | cat; cp -r {prefix} ~/copy\n"
        "cat ~/copy/*/*; ls ~/copy\n"
    )
    result = await person.sh(f"({script}) 2>/dev/null", sandbox)
    assert result.output.startswith("hello\n")
    assert "timeout = 7" in result.output
    assert _SECRET not in result.output


def test_settings_without_a_password_stay_readable(tmp_path: Path) -> None:
    """Rows: a file of settings, and whether it is hidden."""
    rows = Rows()
    table = {
        "pip.conf": ("[global]\nindex-url = https://example.org/simple\n", False),
        "condarc": ("channels:\n  - https://conda.anaconda.org/t/ab-12345678-cd/x\n", True),
        "settings.xml": ("<settings><!-- <password>x</password> --></settings>", False),
        "gradle.properties": ("org.gradle.jvmargs=-Xmx2g\n# signing.password=x\n", False),
        ".cargo/config.toml": ('[registries.x]\nindex = "https://x"\ntoken = "y"\n', True),
        ".git/config": (
            '[remote "origin"]\n url = https://ghp_abcdefghijklmnop@github.com/x\n',
            True,
        ),
        "poetry.toml": ("[virtualenvs]\nin-project = true\n", False),
    }
    for name, (text, hidden) in table.items():
        with rows.row(name):
            prefix = tmp_path / name.replace("/", "-")
            (prefix / "bin").mkdir(parents=True)
            path = _written(prefix / "etc" / name, text)
            found = find_toolchains((prefix,), person=tmp_path / "ada")
            assert found.secrets == ((path,) if hidden else ())
    rows.check()


@sandboxed
async def test_a_folder_of_the_workspace_on_path_stays_as_it_was(tmp_path: Path) -> None:
    person = Person(tmp_path)
    inner = person.workspace / "bin"
    inner.mkdir()
    person.path = [str(inner)]
    person.log_in()
    result = await person.sh("echo $PATH; echo changed > bin/new; cat bin/new")
    path, changed = result.output.splitlines()
    assert str(inner) not in path.split(":")
    assert changed == "changed"


@sandboxed
async def test_toolchains_off_shows_the_systems_programs_alone(person: Person) -> None:
    _managers(person)
    result = await person.sh("echo $PATH; ls -d ~/.pyenv; snake", person.sandbox("off"))
    assert result.output.splitlines()[0] == DEFAULT_PATH
    assert result.exit_code == 127


def test_a_login_shell_that_fails_or_hangs_leaves_the_daemons_own_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/of/the/daemon")
    for text, limit_s in (("sleep 60", 0.5), ("exit 3", 60.0), ("exec 1>&-", 60.0)):
        monkeypatch.setattr("clawd.security.sandbox.toolchains._SHELL_LIMIT_S", limit_s)
        (tmp_path / ".bash_profile").write_text(text)
        assert login_environment(tmp_path)["PATH"] == "/usr/bin:/of/the/daemon", text
    (tmp_path / ".bash_profile").write_text("echo noise; PATH=/x:$PATH; trap 'echo bye' EXIT")
    assert login_environment(tmp_path)["PATH"].startswith("/x:")


_GIT_CONFIG = """\
[user]
	name = Ada \\"the first\\" Lovelace
	email = ada@example.org
	signingkey = 4711
[init]
	defaultBranch = trunk
[alias]
	ci = commit
	last = log -1 --format="%s"
	run = !touch outside
	odd = -c core.hooksPath=/x status
	up = push https://ada:tell-nobody-4711@example.org/
[credential]
	helper = store
[core]
	hooksPath = /home/ada/hooks
	editor = evil
[commit]
	gpgsign = true
"""


@sandboxed
async def test_p2_git_commits_as_the_person_and_knows_no_helper_and_no_hook_of_theirs(
    person: Person,
) -> None:
    (person.home / ".gitconfig").write_text(_GIT_CONFIG)
    hooks = _written(person.home / "hooks" / "pre-commit", "#!/bin/sh\necho hook\n")
    hooks.chmod(0o755)
    # What a repository is begun with is held by the guard against files that run later.
    subprocess.run(["git", "init", "-q", "-b", "trunk", person.workspace], check=True)
    result = await person.sh(
        "echo x > f && git add f && git ci -qm 'the first' && git log -1 --format='%an <%ae> %s'\n"
        "git last; git branch --show-current; git config --global --list; git run; git odd; git up"
    )
    lines = result.output.splitlines()
    assert lines[:3] == [
        'Ada "the first" Lovelace <ada@example.org> the first',
        "the first",
        "trunk",
    ]
    assert sorted(line for line in lines if "=" in line) == sorted([
        'user.name=Ada "the first" Lovelace', "user.email=ada@example.org",
        "init.defaultbranch=trunk", "alias.ci=commit", "alias.last=log -1 --format=%s",
    ])  # fmt: skip
    assert _SECRET not in result.output
    assert "hook" not in result.output


_PACKAGE_SETTINGS = {
    ".config/pip/pip.conf": "[global]\nindex-url = https://ada:tell-nobody-4711@pip.lan/simple\n"
    "extra-index-url = http://more.lan:8080/simple\n    file:///srv/wheels\nproxy = x\n",
    ".npmrc": "registry=https://npm.lan/\n@team:registry = https://team.lan/npm/\n"
    "//npm.lan/:_authToken=tell-nobody-4711\nscript-shell=/bin/evil\n",
    ".cargo/config.toml": '[source.crates-io]\nreplace-with = "lan"\n'
    '[source.lan]\nregistry = "sparse+https://crates.lan/index/"\n'
    '[source.old]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "/srv/vendor"\n'
    '[registries.team]\nindex = "https://team.lan/index"\ntoken = "tell-nobody-4711"\n'
    '[build]\nrustc-wrapper = "/bin/evil"\n',
    ".config/uv/uv.toml": '[[index]]\nname = "lan"\nurl = "https://ada:tell-nobody-4711@uv.lan/s"\n'
    'default = true\n[[index]]\nurl = "/srv/wheels"\n[pip]\nkeyring-provider = "subprocess"\n',
}
_PACKAGE_SETTINGS_INSIDE = """\
[global]
index-url = https://pip.lan/simple
extra-index-url = http://more.lan:8080/simple
registry=https://npm.lan/
@team:registry=https://team.lan/npm/
[source."crates-io"]
replace-with = "lan"
[source."lan"]
registry = "sparse+https://crates.lan/index/"
[registries."team"]
index = "https://team.lan/index"
[[index]]
name = "lan"
url = "https://uv.lan/s"
default = true
"""


@sandboxed
async def test_package_tools_ask_the_persons_indexes_and_know_no_password_of_theirs(
    person: Person,
) -> None:
    for name, text in _PACKAGE_SETTINGS.items():
        _written(person.home / name, text)
    (person.home / ".bash_profile").write_text(
        "export GOPROXY=https://ada:tell-nobody-4711@go.lan,direct UV_DEFAULT_INDEX=https://uv.lan/\n"
    )
    files = " ".join(f"~/{name}" for name in _PACKAGE_SETTINGS)
    result = await person.sh(f"cat {files}; echo $GOPROXY $UV_DEFAULT_INDEX; echo x >> ~/.npmrc")
    assert result.output == f"{_PACKAGE_SETTINGS_INSIDE}https://go.lan,direct https://uv.lan/\n"
    for name, text in _PACKAGE_SETTINGS.items():
        assert (person.home / name).read_text() == text


def test_indexes_of_the_environment_go_before_those_of_files(tmp_path: Path) -> None:
    _written(tmp_path / ".npmrc", "registry=https://npm.lan/\n")
    _written(tmp_path / ".pip/pip.conf", "[install]\nindex-url = https://pip.lan/simple\n")
    environ = {"PIP_INDEX_URL": "https://pip.test/", "npm_config_registry": "https://npm.test/"}
    assert package_settings_of(tmp_path, environ) == (
        (".config/pip/pip.conf", b"[global]\nindex-url = https://pip.test/\n"),
        (".npmrc", b"registry=https://npm.test/\n"),
    )
    broken = {".npmrc": "registry=${X}\n\0", ".pip/pip.conf": "[", ".cargo/config": "["}
    for name, text in broken.items():
        _written(tmp_path / name, text)
    assert package_settings_of(tmp_path, {"PIP_INDEX_URL": "https://x/?token=abcdef"}) == ()


def test_without_settings_of_git_nothing_is_made_up(tmp_path: Path) -> None:
    assert git_config_of(tmp_path) == b""
    assert shutil.which("git")


@sandboxed
async def test_caches_are_kept_for_a_project_and_for_no_other(person: Person) -> None:
    other = person.home / "src" / "other"
    other.mkdir()
    sandbox = person.sandbox()
    made = "for d in .cache .npm .cargo/registry go/pkg .m2/repository .rustup/downloads; do"
    result = await person.sh(f"{made} echo kept > ~/$d/f || exit 1; done; echo gone > ~/f", sandbox)
    assert result.exit_code == 0, result.output
    again = await person.sh(f"{made} cat ~/$d/f; done; cat ~/f", sandbox)
    assert again.output.count("kept") == 6
    assert "gone" not in again.output
    elsewhere = await person.sh(f"{made} cat ~/$d/f; done", sandbox, other)
    assert "kept" not in elsewhere.output
    assert sorted(each.name for each in person.home.iterdir()) == [".clawd", "src"]


@sandboxed
async def test_a_link_in_the_place_of_a_cache_leads_nobody_outside(person: Person) -> None:
    outside = person.home / "outside"
    outside.mkdir()
    sandbox = person.sandbox()
    kept = "~/.kept"
    script = f"cd {kept} && rm -rf .cargo .npm && ln -s {outside} .cargo && ln -s {outside} .npm"
    assert (await person.sh(script, sandbox)).exit_code == 0
    assert (await person.sh("echo x > ~/.cargo/registry/f", sandbox)).exit_code == 0
    caches = sandbox.caches
    assert caches is not None
    assert caches.remove(caches.all()[0].id)
    assert list(outside.iterdir()) == []
    assert caches.all() == []


def test_the_projects_not_used_for_longest_go_first_and_those_at_work_stay(tmp_path: Path) -> None:
    caches = ProjectCaches(tmp_path / "projects")
    for age, name in enumerate(("new", "old", "older", "oldest")):
        home = caches.enter(Path("/w") / name)
        (home / ".cache" / "f").write_bytes(b"x" * 1_000_000)
        deep = home / "go" / "pkg" / "closed"
        deep.mkdir()
        (deep / "f").write_text("x")
        deep.chmod(0o500)  # as Go leaves its modules
        os.utime(home.parent / "workspace", (1e9 - age, 1e9 - age))
        if name != "oldest":
            caches.leave(Path("/w") / name)
    assert [each.workspace for each in caches.all()] == [
        "/w/new",
        "/w/old",
        "/w/older",
        "/w/oldest",
    ]
    removed = caches.shrink(2_500_000)
    assert [each.workspace for each in removed] == ["/w/older", "/w/old"]
    assert [each.workspace for each in caches.all()] == ["/w/new", "/w/oldest"]
    left = {each.name for each in (tmp_path / "projects").iterdir()}
    assert left == {each.id for each in caches.all()}
    assert [caches.remove(each.id) for each in caches.all()] == [True, False]


@sandboxed
async def test_what_is_said_to_be_visible_and_writable_inside_is(person: Person) -> None:
    """Rows: a path, asked of the judge's side and tried by a command."""
    person.program("tool/bin/hello", says="hello")
    _written(person.home / "tool" / ".npmrc", _SECRET)
    _written(person.home / "private", _SECRET)
    _written(person.workspace / "f", "x")
    sandbox = person.sandbox((person.home / "tool",))
    await sandbox.toolchains()
    await sandbox.probe()
    inside = sandbox.inside(person.workspace)
    rows, is_full = Rows(), person.level == "bwrap"
    table = {
        person.workspace / "f": "rw",
        person.home / "tool/bin/hello": "r-",
        person.home / "tool/.npmrc": "--",
        Path("/usr/bin/env"): "r-",
        Path("/bin/sh"): "r-",
        Path("/etc/shadow"): "--",
        Path("/etc/passwd"): "r-" if is_full else "--",
        Path("/tmp"): "rw" if is_full else "--",
        Path("/root"): "--",
        Path("/dev/null"): "rw" if is_full else "--",
        Path("/proc/cpuinfo"): "r-",
        Path("/proc/1/status"): "r-" if is_full else "--",
    }
    for path, expected in table.items():
        with rows.row(path):
            assert inside.writable_inside(path) == ("w" in expected)
            if path == Path("/dev/null"):
                continue  # a device: at Landlock's level the host's, and nothing to be read there
            probe = (
                f"p={path}; if [ -d $p ]; then ls $p >/dev/null && echo r; echo > $p/n && echo w\n"
            )
            probe += (
                "else head -c 1 $p | grep -q . && echo r; [ ! -c $p ] && echo >> $p && echo w; fi"
            )
            said = (await person.sh(f"({probe}) 2>/dev/null", sandbox)).output.split()
            assert said == [sign for sign in expected if sign != "-"]
    rows.check()
    assert inside.is_own(Path("/tmp/new")) == (person.level == "bwrap")
    assert not inside.is_own(person.workspace / "f")
