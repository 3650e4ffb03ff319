"""The Debian package that `make deb` left in build/deb: what is in it, and that it runs."""

import gzip
import hashlib
import importlib.util
import marshal
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from bootstrap import debian, lock, manpages
from bootstrap.package_site import PREFIX, SITE

from clawctl.commands.completion import SCRIPTS

ROOT = Path(__file__).resolve().parents[2]
UNCHECKED_HASH = b"\x01\x00\x00\x00"
LIMIT_S = 100
MAX_MB = 80

pytestmark = pytest.mark.package


@pytest.fixture(scope="module")
def package() -> Path:
    return debian.built_packages()[0]


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the package holds, and its control files in DEBIAN."""
    folder = tmp_path_factory.mktemp("package") / "root"
    command = ["dpkg-deb", "--raw-extract", str(package), str(folder)]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return folder


@pytest.fixture(scope="module")
def members(package: Path) -> list[tarfile.TarInfo]:
    """The entries as they are packed, with owners and modes."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as child,
        tarfile.open(fileobj=child.stdout, mode="r|") as archive,
    ):
        return list(archive)


def test_it_is_of_these_sources(package: Path) -> None:
    note = package.parent / "built-from"
    key = note.read_text(encoding="utf-8").split()[0]  # what may follow names an engine
    assert key == debian.sources_key(), "run make deb again"


@pytest.mark.timeout(1000)
def test_lintian_finds_nothing(package: Path) -> None:
    command = ["lintian", "--fail-on", "error,warning", "--display-info", str(package)]
    if os.geteuid() == 0:
        command.insert(1, "--allow-root")
    answer = subprocess.run(command, capture_output=True, text=True, timeout=9 * LIMIT_S)
    found = [line for line in answer.stdout.splitlines() if line.startswith(("E:", "W:"))]
    assert (found, answer.returncode) == ([], 0), answer.stderr


def test_owners_and_modes_are_safe(members: list[tarfile.TarInfo]) -> None:
    assert {(member.uid, member.gid) for member in members} == {(0, 0)}
    writable = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
    bad = [member.name for member in members if not member.issym() and member.mode & writable]
    assert bad == []
    kinds = {member.type for member in members}
    assert kinds <= {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE}
    assert {m.mode for m in members if m.isfile()} == {0o644, 0o755}


def test_every_file_is_of_the_changelogs_time(members: list[tarfile.TarInfo]) -> None:
    assert max(member.mtime for member in members) <= int(debian.epoch())


def test_files_lie_where_the_package_may_put_them(members: list[tarfile.TarInfo]) -> None:
    allowed = (
        "etc/clawd/", "lib/systemd/system/", "usr/bin/claw", "usr/lib/clawd/",
        "usr/lib/systemd/user/", "usr/lib/sysusers.d/", "usr/lib/tmpfiles.d/",
        "usr/share/doc/clawd/",
        "usr/share/man/", "usr/share/bash-completion/completions/", "usr/share/zsh/",
        "usr/share/fish/", "usr/share/lintian/overrides/",
    )  # fmt: skip
    files = [member.name.removeprefix("./") for member in members if not member.isdir()]
    assert [name for name in files if not name.startswith(allowed)] == []
    assert {"usr/bin/clawd", "usr/bin/clawctl", "etc/clawd/config.toml"} <= set(files)
    tests = [name for name in files if {"tests", "test"} & set(PurePosixPath(name).parts)]
    assert tests == []


def test_nothing_tells_where_it_was_built(tree: Path) -> None:
    path = os.fsencode(ROOT)
    told = [
        str(file.relative_to(tree))
        for file in tree.rglob("*")
        if file.is_file() and not file.is_symlink() and path in file.read_bytes()
    ]
    assert told == []


def test_each_module_is_compiled_and_for_its_place(tree: Path) -> None:
    """Unchecked, so that starting reads no source; true all the same: the hash is the source's."""
    site = tree / SITE
    compiled = set()
    for source in site.rglob("*.py"):
        path = Path(importlib.util.cache_from_source(str(source), optimization=""))
        path = path.with_name(f"{source.stem}.cpython-311.pyc")
        assert path.exists(), source
        compiled.add(path)
        content = path.read_bytes()
        assert content[4:8] == UNCHECKED_HASH, path
        assert content[8:16] == importlib.util.source_hash(source.read_bytes()), path
    assert set(site.rglob("*.pyc")) == compiled


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="these modules are Python 3.11's")
def test_tracebacks_name_the_installed_files(tree: Path) -> None:
    path = tree / SITE / "clawd/service/__pycache__/main.cpython-311.pyc"
    code = marshal.loads(path.read_bytes()[16:])
    assert code.co_filename == f"/{SITE}/clawd/service/main.py"


def test_every_vendored_package_is_in_the_copyright(tree: Path) -> None:
    shipped = {
        lock.normalized(path.name.split("-")[0])
        for path in (tree / SITE).glob("*.dist-info")
    } - {"clawd"}  # fmt: skip
    assert shipped == set(lock.pinned())
    text = (tree / "usr/share/doc/clawd/copyright").read_text(encoding="utf-8")
    named = {
        lock.normalized(PurePosixPath(name).name.split("-")[0])
        for name in re.findall(r"^Files: vendor/(\S+)", text, re.MULTILINE)
    }
    assert named == shipped


def test_settings_and_units_are_those_of_the_checkout(tree: Path) -> None:
    pairs = {
        "etc/clawd/config.toml": "etc/config.toml",
        "lib/systemd/system/clawd.service": "systemd/clawd.service",
        "lib/systemd/system/clawd.socket": "systemd/clawd.socket",
        "usr/lib/systemd/user/clawd.service": "systemd/user/clawd.service",
        "usr/lib/systemd/user/clawd-wake.service": "systemd/user/clawd-wake.service",
        "usr/lib/systemd/user/clawd-wake.timer": "systemd/user/clawd-wake.timer",
        "usr/lib/sysusers.d/clawd.conf": "systemd/clawd.sysusers",
        "usr/lib/tmpfiles.d/clawd.conf": "systemd/clawd.tmpfiles",
    }
    for packed, source in pairs.items():
        assert (tree / packed).read_bytes() == (ROOT / source).read_bytes(), packed
    assert (tree / "DEBIAN/conffiles").read_text(encoding="utf-8") == "/etc/clawd/config.toml\n"


def test_the_manual_and_the_completions_are_those_of_the_commands(tree: Path) -> None:
    share = tree / "usr/share"
    found = {
        path.name: gzip.decompress(path.read_bytes()).decode("utf-8")
        for path in (share / "man").glob("man*/*.gz")
    }
    assert set(found) == {f"{name}.gz" for name in manpages.pages()}
    assert [name for name, text in found.items() if not text.startswith(".TH ")] == []
    assert (share / "man/man8/clawd.8.gz").exists()
    assert (share / "man/man5/clawd.toml.5.gz").exists()
    places = {
        "bash": "bash-completion/completions/clawctl",
        "zsh": "zsh/vendor-completions/_clawctl",
        "fish": "fish/vendor_completions.d/clawctl.fish",
    }
    packed = {shell: (share / place).read_text("utf-8") for shell, place in places.items()}
    assert packed == SCRIPTS


def test_examples_are_those_of_the_checkout(tree: Path) -> None:
    examples = tree / "usr/share/doc/clawd/examples"
    sources = [ROOT / "etc" / name for name in ("external-tools", "grafana", "plugins")]
    sources += [ROOT / "etc/policy-cases.toml", ROOT / "systemd/drop-ins"]
    wanted = {
        path.relative_to(source.parent): path.read_bytes()
        for source in sources
        for path in (source, *source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(wanted) > 6
    packed = (path for path in examples.rglob("*") if path.is_file())
    assert {path.relative_to(examples): path.read_bytes() for path in packed} == wanted


def test_maintainer_scripts_stop_nothing_on_upgrade_and_enable_no_users_daemon(tree: Path) -> None:
    scripts = {path.name: path.read_text("utf-8") for path in (tree / "DEBIAN").glob("p*")}
    assert "systemd-sysusers" in scripts["postinst"]
    assert "--user enable 'clawd.service'" not in re.sub(
        r"if deb-systemd-helper --quiet --user was-enabled.*?fi",
        "",
        scripts["postinst"],
        flags=re.S,
    )
    assert "stop" not in scripts.get("preinst", "")
    assert "rm -rf" not in scripts["prerm"] + scripts["postinst"] + scripts.get("preinst", "")
    before, _, purged = scripts["postrm"].partition('if [ "$1" = purge ]; then\n    rm -rf')
    assert (bool(purged), "rm -rf" in before) == (True, False)


def test_it_is_no_larger_than_it_must_be(package: Path) -> None:
    if " " in (package.parent / "built-from").read_text(encoding="utf-8"):
        pytest.skip("this package was made for tests, and packed quickly")
    assert package.stat().st_size < MAX_MB * 1_000_000


@pytest.fixture
def installed(tree: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in a root of the host's /usr and the package's files, without any network."""
    home = tmp_path / "home"
    home.mkdir()
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv", "--tmpfs", "/"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", "/etc", "/etc"]
    words += ["--bind", str(home), "/home", "--chdir", "/home"]
    for name in ("lib", "bin", "sbin", "lib64"):
        if Path("/", name).is_symlink():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
    for path in sorted(Path("/usr/lib").iterdir()):
        words += ["--ro-bind", str(path), str(path)]
    words += ["--ro-bind", "/usr/lib64", "/usr/lib64", "--ro-bind", "/usr/share", "/usr/share"]
    words += ["--ro-bind", str(tree / PREFIX), f"/{PREFIX}"]
    for name in ("python3", "bwrap", "sh", "ls", "env"):
        words += ["--ro-bind", f"/usr/bin/{name}", f"/usr/bin/{name}"]
    for name in ("clawd", "clawctl"):
        words += ["--ro-bind", str(tree / "usr/bin" / name), f"/usr/bin/{name}"]
    words += ["--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/home"]

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        settings = [word for pair in variables.items() for word in ("--setenv", *pair)]
        return subprocess.run(
            [*words, *settings, *command], capture_output=True, text=True, timeout=LIMIT_S
        )

    return run


@pytest.mark.sandbox
def test_it_runs_with_debians_python_alone(
    installed: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    version = installed("clawd", "--version")
    assert (version.returncode, version.stdout) == (0, "clawd 0.1.0\n"), version
    checked = installed("clawd", "--check-config")
    assert checked.returncode == 0, checked


@pytest.mark.sandbox
def test_no_module_of_the_environment_gets_in(
    installed: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "home" / "click.py").write_text("raise SystemExit('mine')", encoding="utf-8")
    answer = installed("clawctl", "version", PYTHONPATH="/home", PYTHONSTARTUP="/home/click.py")
    assert (answer.returncode, "mine" in answer.stderr) == (0, False), answer
    code = "import sys; print(*sys.path, sep='\\n')"
    paths = installed(f"/{PREFIX}/bin/python3", "-I", "-c", code).stdout.split()
    assert f"/{SITE}" in paths
    assert [path for path in paths if "dist-packages" in path or path.startswith("/home")] == []


@pytest.mark.sandbox
def test_the_embedded_model_answers_offline_on_code_for_this_processor(
    installed: Callable[..., subprocess.CompletedProcess[str]], tree: Path
) -> None:
    script = (
        "clawctl init >/dev/null && clawctl agent -m 'What time is it?' && "
        "clawctl model ps --json && clawctl receipt verify"
    )
    answer = installed("sh", "-c", script)
    assert answer.returncode == 0, answer
    # A package that was made for tests alone holds the one library of this machine.
    has_choice = any((tree / SITE / "llama_cpp" / "lib").glob("libggml-cpu-*.so"))
    assert re.search(r'"processor": ?"[a-z]\w+"', answer.stdout) or not has_choice, answer.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_built_again_elsewhere_it_is_the_same(package: Path, tmp_path: Path) -> None:
    """In another folder, by another umask, in another zone and language, with the wheels there."""
    before = next(debian.WORK.glob("clawd-*"))
    again = tmp_path / "a second place" / before.name
    left_out = shutil.ignore_patterns("clawd", "*.substvars", "*.log", "files", ".debhelper")
    shutil.copytree(before, again, ignore=shutil.ignore_patterns("__pycache__", "debian"))
    shutil.copytree(ROOT / "packaging" / "debian", again / "debian", ignore=left_out)
    python = debian.FOLDER / "venv" / "bin" / "python"
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "CLAWD_BUILD_PYTHON": str(python),
        "CLAWD_DEB_COMPRESSION": "none",
    }
    command = ["dpkg-buildpackage", "--unsigned-changes", "--build=binary"]
    done = subprocess.run(
        command, cwd=again, env=environ, capture_output=True, text=True, timeout=380, umask=0o077
    )
    assert done.returncode == 0, done.stderr[-2000:]
    made = next(again.parent.glob("*.deb"))
    assert unpacked_digests(made) == unpacked_digests(package)


def unpacked_digests(package: Path) -> list[str]:
    """Gives the hashes of a package's two archives; compressing them adds nothing of its own."""
    found = []
    for part in ("--ctrl-tarfile", "--fsys-tarfile"):
        with subprocess.Popen(["dpkg-deb", part, str(package)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            found.append(hashlib.file_digest(child.stdout, "sha256").hexdigest())  # type: ignore[arg-type]
    return found
