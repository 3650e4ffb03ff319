"""The parts of `make deb`: system, lock, the engine's wheel, copyright, compiled modules."""

import hashlib
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from bootstrap import debian, lock, models, package_copyright, package_site, portable
from bootstrap.environment import engine_requirement, read_project, satisfies
from bootstrap.steps import SetupError

from clawd.engine.models import BASE_FILE, MERGED_FILE, SHARED_MODELS
from clawd.wire.models import ModelPin, decode_pin, encode_pin, pin_of

HASHED = re.compile(r"[a-z0-9-]+==\S+( +--hash=sha256:[0-9a-f]{64})+")


def test_every_line_of_the_lock_is_pinned_and_hashed() -> None:
    entries = lock.entries()
    assert [entry for entry in entries if not HASHED.fullmatch(entry)] == []
    assert len(entries) == len(lock.pinned()) > 50


def test_the_lock_satisfies_every_dependency() -> None:
    pins = lock.pinned()
    wanted = {
        lock.normalized(re.split(r"[<>=\[ ]", text)[0]): text
        for text in [*read_project()["project"]["dependencies"], engine_requirement()]
    }
    missing = [text for name, text in wanted.items() if not satisfies(pins.get(name, "0"), text)]
    assert missing == []


def test_elsewhere_it_says_where_it_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04"\n', "utf-8")
    monkeypatch.setattr(debian, "RELEASE", release)
    with pytest.raises(SetupError, match=r"Ubuntu 24\.04[^$]*debootstrap[^$]*make -C /mnt deb"):
        debian.check_system()


def test_a_change_of_a_source_asks_for_a_new_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(debian, "ROOT", tmp_path)
    (tmp_path / "clawd" / "__pycache__").mkdir(parents=True)
    (tmp_path / "clawd" / "a.py").write_text("1", encoding="utf-8")
    first = debian.sources_key()
    (tmp_path / "clawd" / "__pycache__" / "a.pyc").write_text("x", encoding="utf-8")
    (tmp_path / "elsewhere").write_text("x", encoding="utf-8")
    assert debian.sources_key() == first
    (tmp_path / "clawd" / "a.py").write_text("2", encoding="utf-8")
    assert debian.sources_key() != first


@pytest.mark.skipif(
    not (shutil.which("dpkg-deb") and shutil.which("dpkg-parsechangelog")), reason="no dpkg-dev"
)
def test_the_model_package_holds_the_base_where_clawd_looks_and_nothing_else_is_packed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    base = tmp_path / "base.gguf"
    base.write_bytes(b"GGUF weights")
    with pytest.raises(SetupError, match="SHA-256"):
        debian.build_model_package(base, tmp_path)
    assert list(tmp_path.iterdir()) == [base]

    monkeypatch.setattr(models, "SHA256", hashlib.sha256(b"GGUF weights").hexdigest())
    package = debian.build_model_package(base, tmp_path)
    first = package.read_bytes()
    assert debian.build_model_package(base, tmp_path).read_bytes() == first
    assert sorted(tmp_path.iterdir()) == [base, package]
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "root"], check=True, timeout=100)
    found = {str(path.relative_to(tmp_path / "root")) for path in (tmp_path / "root").rglob("*")}
    assert {each for each in found if "." in each or each.endswith("copyright")} == {
        "usr/share/clawd/models/assistant.gguf",
        "usr/share/doc/clawd-model-small/changelog.Debian.gz",
        "usr/share/doc/clawd-model-small/copyright",
    }
    assert Path("/usr/share/clawd/models/assistant.gguf") == SHARED_MODELS / BASE_FILE

    merged = tmp_path / "assistant-merged-0123.gguf"
    merged.write_bytes(b"GGUF merged weights")
    noted = hashlib.sha256(merged.read_bytes()).hexdigest()
    pin_of(merged).write_bytes(encode_pin(ModelPin(sha256=noted, source="elsewhere")))
    package = debian.build_model_package(base, tmp_path, merged)
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "both"], check=True, timeout=100)
    packed = tmp_path / "both/usr/share/clawd/models" / MERGED_FILE
    assert packed.read_bytes() == merged.read_bytes()
    assert decode_pin(pin_of(packed).read_bytes()).sha256 == noted
    assert packed.with_name(BASE_FILE).read_bytes() == base.read_bytes()


@pytest.fixture
def build(tmp_path: Path) -> tuple[Path, Path]:
    """The source and the binaries of an engine."""
    source, binaries = tmp_path / "source", tmp_path / "bin"
    texts = {
        "llama_cpp/__init__.py": "x = 1",
        "llama_cpp/server/app.py": "import fastapi",
        "llama_cpp/py.typed": "",
        "PKG-INFO": "Metadata-Version: 2.1\nName: llama-cpp\nVersion: 1\nLicense: MIT\n",
        "LICENSE.md": "Copyright (c) 2023 Somebody\n",
        "vendor/llama.cpp/LICENSE": "Copyright (c) 2024 Others\n",
    }
    for name, text in texts.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    binaries.mkdir()
    for name in (*portable.LIBRARIES, "libggml-cpu-haswell.so", "libggml-cpu-x64.so"):
        (binaries / name).write_bytes(name.encode())
    return source, binaries


def test_the_engines_wheel_is_the_same_twice(build: tuple[Path, Path], tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(portable.write_wheel(*build, tmp_path / name).read_bytes())
    assert made[0] == made[1]


def test_the_engines_wheel_holds_every_module_and_no_server(
    build: tuple[Path, Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(portable.write_wheel(*build, tmp_path)) as wheel:
        names = {name for name in wheel.namelist() if not name.startswith("llama_cpp_python-")}
        assert wheel.testzip() is None
    assert names == {
        "llama_cpp/__init__.py",
        "llama_cpp/py.typed",
        *(f"llama_cpp/lib/{name}" for name in portable.LIBRARIES),
        "llama_cpp/lib/libggml-cpu-haswell.so",
        "llama_cpp/lib/libggml-cpu-x64.so",
    }


def test_an_engine_without_modules_is_no_portable_one(build: tuple[Path, Path]) -> None:
    source, binaries = build
    for path in binaries.glob("libggml-cpu-*"):
        path.unlink()
    with pytest.raises(SetupError, match="libggml-cpu"):
        portable.write_wheel(source, binaries, source)


def test_a_paragraph_names_the_owner_and_carries_the_licence(
    build: tuple[Path, Path], tmp_path: Path
) -> None:
    text = package_copyright.paragraph(portable.write_wheel(*build, tmp_path))
    assert "Copyright: 2024 Others\n 2023 Somebody\n" in text
    assert "\nLicense: MIT~llama-cpp\n" in text


def test_what_is_compiled_into_a_wheel_is_named_with_it(tmp_path: Path) -> None:
    wheel = tmp_path / "llguidance-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        metadata = "Metadata-Version: 2.1\nName: llguidance\nVersion: 1\nLicense: MIT\n"
        archive.writestr("llguidance-1.dist-info/METADATA", metadata)
    text = package_copyright.paragraph(wheel)
    assert "2015 The Fancy Regex Authors" in text
    assert "tokenizers" in text and "Permission is hereby granted" in text


def test_a_licence_that_debian_has_is_named_and_not_copied() -> None:
    text = "Mine.\nTERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION\nlong\n"
    body = package_copyright.body([text + "END OF TERMS AND CONDITIONS\nAnd this.\n"])
    assert "/usr/share/common-licenses/Apache-2.0" in body
    assert ("Mine." in body, "And this." in body, "long" in body) == (True, True, False)


def test_a_wheel_without_any_licence_stops_the_build(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: x\nVersion: 1\n")
    with pytest.raises(ValueError, match="no licence text"):
        package_copyright.paragraph(wheel)


def test_modules_are_compiled_for_their_place_and_never_compared(tmp_path: Path) -> None:
    site = tmp_path / "a root" / package_site.SITE
    (site / "part" / "inner").mkdir(parents=True)
    (site / "part" / "inner" / "a.py").write_text("def f():\n    return 1\n", encoding="utf-8")
    (site / "one.py").write_text("x = {'a', 'b', 'c'}\n", encoding="utf-8")
    package_site.compile_all(site)
    first = {path: path.read_bytes() for path in site.rglob("*.pyc")}
    assert len(first) == 2
    assert {content[4:8] for content in first.values()} == {b"\x01\x00\x00\x00"}
    assert all(b"a root" not in content for content in first.values())
    package_site.compile_all(site)
    assert {path: path.read_bytes() for path in site.rglob("*.pyc")} == first


def test_scripts_of_the_package_are_valid_shell() -> None:
    for name in ("postinst", "postrm", "prerm", "install-docs"):
        subprocess.run(["sh", "-n", str(debian.TEMPLATE / name)], check=True, timeout=60)
