"""Choosing llama.cpp's code for the processor, where it lies apart; a build that has it inside."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawd.engine.worker import files
from clawd.engine.worker.files import LoadError, library_folder, load_backends, loaded_variant
from tests.support.rows import each_row

CPU = 7


class FakeLibrary:
    """The binding over a llama.cpp that computes at once, after loading, or never."""

    def __init__(self, folder: Path, *, is_inside: bool = False, fits: bool = True) -> None:
        self.__file__ = str(folder / "llama_cpp.py")
        self.loaded: list[bytes] = []
        self._has_cpu = is_inside
        self._fits = fits
        self.functions: dict[str, Callable[..., Any]] = {
            "ggml_backend_reg_by_name": lambda name: {b"CPU": CPU}[name] if self._has_cpu else None,
            "ggml_backend_load_all_from_path": self._load,
        }

    def ctypes_function(
        self, name: str, _arguments: list[Any], _result: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        if name not in self.functions:
            raise AttributeError(name)
        return lambda _stub: self.functions[name]

    def _load(self, folder: bytes) -> None:
        self.loaded.append(folder)
        self._has_cpu = self._fits


def test_modules_are_loaded_from_beside_the_library(tmp_path: Path) -> None:
    library = FakeLibrary(tmp_path)
    load_backends(library)
    assert library.loaded == [bytes(tmp_path / "lib")]


def test_they_are_loaded_once(tmp_path: Path) -> None:
    library = FakeLibrary(tmp_path)
    load_backends(library)
    load_backends(library)
    assert len(library.loaded) == 1


def test_a_build_that_computes_by_itself_loads_nothing(tmp_path: Path) -> None:
    library = FakeLibrary(tmp_path, is_inside=True)
    load_backends(library)
    assert library.loaded == []


def test_a_build_that_knows_no_modules_is_left_alone(tmp_path: Path) -> None:
    library = FakeLibrary(tmp_path)
    library.functions.clear()
    load_backends(library)
    assert library.loaded == []


def test_a_processor_that_nothing_fits_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="nothing that computes on this processor") as caught:
        load_backends(FakeLibrary(tmp_path, fits=False))
    assert str(tmp_path / "lib") in str(caught.value)


def test_the_folder_that_the_binding_was_told_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path / "own"))
    assert library_folder(FakeLibrary(tmp_path)) == tmp_path / "own"


def test_the_variant_is_the_module_that_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    lines = (
        "7f1 r-xp 0 0:1 9 /usr/lib/clawd/llama_cpp/lib/libggml-base.so.0",
        "7f2 r--p 0 0:1 9 /usr/lib/clawd/llama_cpp/lib/libggml-cpu-zen4.so",
        "7f3 r-xp 0 0:1 9 /usr/lib/clawd/llama_cpp/lib/libggml-cpu-zen4.so",
    )
    maps.write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr("clawd.engine.worker.files._OWN_PROCESS", maps)
    assert loaded_variant() == "zen4"
    maps.write_text("7f1 r-xp 0 0:1 9 /usr/lib/libggml-cpu.so\n", encoding="utf-8")
    assert loaded_variant() == ""


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of cgroups with this process in a/b, on a machine with eight cores of two threads."""
    root = tmp_path / "cgroup"
    (root / "a/b").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("1:cpu:/old\n0::/a/b\n")
    topology = tmp_path / "siblings-{}"
    for cpu in range(16):
        pair = cpu // 2 * 2
        path = Path(str(topology).format(cpu))
        path.write_text(f"{pair}-{pair + 1}\n", encoding="ascii")
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\nMemAvailable:   4000 kB\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    monkeypatch.setattr(files, "_CGROUPS", root)
    monkeypatch.setattr(files, "_OWN_CGROUP", own)
    monkeypatch.setattr(files, "_SIBLINGS", str(topology))
    monkeypatch.setattr(files, "_MEMORY", tmp_path / "meminfo")
    return root


@each_row(
    ("inner", "outer", "cores"),
    [
        ("max 100000", "max 100000", 8),
        ("", "", 8),
        ("200000 100000", "max 100000", 2),
        ("max 100000", "150000 100000", 2),
        ("10000 100000", "max 100000", 1),
        ("1600000 100000", "", 8),
        ("nonsense", "400000 100000", 4),
    ],
    fresh=("cgroups",),
)
def test_r10_threads_are_the_physical_cores_that_the_cgroups_give(
    cgroups: Path, inner: str, outer: str, cores: int
) -> None:
    for folder, text in ((cgroups / "a/b", inner), (cgroups / "a", outer)):
        if text:
            (folder / "cpu.max").write_text(f"{text}\n")
    assert files.usable_cores() == cores


def test_r10_memory_is_what_is_free_and_no_cgroup_forbids(cgroups: Path) -> None:
    assert files.available_memory() == 4000 * 1024
    (cgroups / "a/memory.max").write_text("3000000\n")
    (cgroups / "a/memory.current").write_text("1000000\n")
    (cgroups / "a/b/memory.max").write_text("max\n")
    assert files.available_memory() == 2_000_000
