"""`clawctl model merge`: what it makes of a model and an adapter, and what it refuses."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import clawd
from clawctl import model_merge, modelfile
from clawctl.main import main
from clawctl.progress import ProgressLine
from clawd.engine.gguf import read_head
from clawd.engine.models import pin_state
from clawd.wire.models import MERGED_FROM
from tests.clawctl.conftest import Capture, json_of
from tests.support.lora_gguf import (
    ALPHA,
    NARROW,
    RANK,
    TOUCHED,
    WIDE,
    Kind,
    finish,
    numbers,
    pair,
    sha256,
    write_adapter,
    write_base,
)
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def folder(home: Path) -> Path:
    models = home / "models"
    models.mkdir(parents=True)
    return models


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def floats(tensor: Any) -> Any:
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


@pytest.mark.parametrize(("alpha", "scale"), [(ALPHA, ALPHA / RANK), (0.0, 1.0)])
def test_the_adapter_is_in_the_weights_and_the_rest_stays(
    folder: Path, tmp_path: Path, capsys: Capture, alpha: float, scale: float
) -> None:
    base = write_base(folder / "tiny.gguf")
    adapter = write_adapter(tmp_path / "style.gguf", alpha=alpha)
    words = ("model", "merge", "tiny", "--adapter", str(adapter))
    document = json_of(capsys, *words, "--json")
    path = folder / "tiny-merged.gguf"
    assert document == {
        "name": "tiny-merged",
        "path": str(path),
        "size_bytes": path.stat().st_size,
        "how": "merged",
        "replaced": False,
        "sha256": sha256(path),
        "source": "tiny.gguf merged with style.gguf",
    }
    assert files_in(folder) == ["tiny-merged.gguf", "tiny-merged.gguf.pin", "tiny.gguf"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert pin_state(path)[0] == "right"

    head = read_head(path)
    assert (head.name, head.quantization, head.context_size) == ("Tiny", "Q8_0", 512)
    assert head.merged_from == (sha256(base), sha256(adapter))
    before, after = gguf.GGUFReader(base), gguf.GGUFReader(path)
    kept = {
        name: field.contents()
        for name, field in before.fields.items()
        if not name.startswith("GGUF.") and name != "general.file_type"
    }
    assert {name: after.fields[name].contents() for name in kept} == kept
    old, new = ({each.name: each for each in reader.tensors} for reader in (before, after))
    assert list(new) == list(old)
    kinds = {name: each.tensor_type for name, each in new.items()}
    assert kinds == dict.fromkeys(new, Kind.Q8_0) | {
        NARROW: Kind.F16,
        "blk.0.attn_norm.weight": Kind.F32,
    }
    added = dict.fromkeys(new, 0.0)
    a, b = pair(TOUCHED, 64, 96).values()
    added[TOUCHED] = scale * (b @ a)
    for name, tensor in new.items():
        assert list(tensor.shape) == list(old[name].shape)
        wanted = floats(old[name]) + added[name]
        step = np.abs(wanted).max() / 127
        assert np.abs(floats(tensor).reshape(wanted.shape) - wanted).max() <= step, name
    for name in ("token_embd.weight", NARROW, "blk.0.attn_norm.weight"):
        assert new[name].data.tobytes() == old[name].data.tobytes()


def test_rows_are_taken_some_at_a_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_base(folder / "tiny.gguf")
    adapter = str(write_adapter(tmp_path / "style.gguf"))
    assert main(["model", "merge", "tiny", "--adapter", adapter]) == 0
    monkeypatch.setattr(model_merge, "_PIECE_NUMBERS", 5 * 64)
    assert main(["model", "merge", "tiny", "--adapter", adapter, "--name", "again"]) == 0
    assert sha256(folder / "again.gguf") == sha256(folder / "tiny-merged.gguf")


def test_what_was_made_of_the_same_two_stays_and_another_file_goes_only_by_force(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    base = write_base(tmp_path / "tiny.gguf")
    words = ["model", "merge", str(base), "--adapter", str(write_adapter(tmp_path / "a.gguf"))]
    assert main(words) == 0
    path = tmp_path / "tiny-merged.gguf"
    made = path.stat().st_ino
    assert main(words) == 0
    assert "there already" in capsys.readouterr().out
    assert path.stat().st_ino == made

    other = [*words[:-1], str(write_adapter(tmp_path / "b.gguf", alpha=3.0))]
    assert main(other) == 1
    assert "is there already" in capsys.readouterr().err
    assert path.stat().st_ino == made
    assert main([*other, "--force"]) == 0
    assert read_head(path).merged_from[1] == sha256(tmp_path / "b.gguf")
    assert pin_state(path)[0] == "right"

    # What was damaged is not what was made.
    with path.open("r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(b"another")
    assert main(other) == 1
    assert main([*other, "--force"]) == 0
    assert pin_state(path)[0] == "right"


def _is_alora(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_array("adapter.alora.invocation_tokens", [1, 2])
    finish(writer)
    return path


ADAPTERS: dict[str, tuple[Any, str]] = {
    "another architecture": (
        lambda path: write_adapter(path, architecture="qwen3"),
        "it is for qwen3, and that is llama",
    ),
    "no adapter at all": (write_base, "it is not a plain LoRA adapter"),
    "another kind": (lambda path: write_adapter(path, kind="dora"), "not a plain LoRA adapter"),
    "one that counts only behind some words": (_is_alora, "not a plain LoRA adapter"),
    "a tensor that the base lacks": (
        lambda path: write_adapter(path, pair("blk.9.attn_q.weight", 64, 96)),
        "blk.9.attn_q.weight is not there, or has no pair",
    ),
    "half of a pair": (
        lambda path: write_adapter(path, {f"{TOUCHED}.lora_a": numbers(RANK, 64)}),
        "has no pair",
    ),
    "other columns": (lambda path: write_adapter(path, pair(TOUCHED, 32, 96)), "do not fit"),
    "other rows": (lambda path: write_adapter(path, pair(TOUCHED, 64, 95)), "do not fit"),
    "other ranks": (
        lambda path: write_adapter(
            path, pair(TOUCHED, 64, 96) | {f"{TOUCHED}.lora_a": numbers(RANK + 1, 64)}
        ),
        "do not fit",
    ),
    "a vector": (
        lambda path: write_adapter(path, pair("blk.0.attn_norm.weight", 64, 1)),
        "do not fit",
    ),
    "rows that are not blocks": (
        lambda path: write_adapter(path, pair(NARROW, 20, 4)),
        "not a multiple of 32",
    ),
    "embeddings": (
        lambda path: write_adapter(path, pair("token_embd.weight", 64, 8)),
        "embeddings of tokens",
    ),
}


@each_row("name", list(ADAPTERS))
def test_an_adapter_that_does_not_fit_is_refused_and_nothing_is_left(
    folder: Path, tmp_path: Path, capsys: Capture, name: str
) -> None:
    write_base(folder / "tiny.gguf")
    write, why = ADAPTERS[name]
    adapter = write(tmp_path / "a.gguf")
    assert main(["model", "merge", "tiny", "--adapter", str(adapter)]) == 1
    assert why in capsys.readouterr().err
    assert files_in(folder) == ["tiny.gguf"]


def test_a_type_that_cannot_be_read_is_refused_where_the_adapter_changes_it(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_base(folder / "tiny.gguf")
    adapter = str(write_adapter(tmp_path / "a.gguf"))
    dequantize = gguf.quants.dequantize

    def unable(kind: Kind) -> None:
        def told(data: Any, of: Kind) -> Any:
            if of == kind:
                raise NotImplementedError(f"Dequantization for {of.name} is not yet implemented")
            return dequantize(data, of)

        monkeypatch.setattr(gguf.quants, "dequantize", told)

    unable(Kind.Q4_1)
    assert main(["model", "merge", "tiny", "--adapter", adapter]) == 1
    assert f"{TOUCHED}: Dequantization for Q4_1" in capsys.readouterr().err
    assert files_in(folder) == ["tiny.gguf"]

    unable(Kind.F16)  # of what stays as it is
    assert main(["model", "merge", "tiny", "--adapter", adapter]) == 0
    made = {each.name: each for each in gguf.GGUFReader(folder / "tiny-merged.gguf").tensors}
    assert (made[WIDE].tensor_type, made[TOUCHED].tensor_type) == (Kind.F16, Kind.Q8_0)


def test_a_file_that_is_not_whole_or_not_there_is_refused(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    base = write_base(folder / "tiny.gguf")
    adapter = write_adapter(tmp_path / "a.gguf")
    words = ["model", "merge", "tiny", "--adapter", str(adapter)]
    whole = {path: path.read_bytes() for path in (base, adapter)}
    for path, data in whole.items():
        for count in (4, 20, 200, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:count])
            assert main(words) == 1, (path, count)
            assert "GGUF" in capsys.readouterr().err
        path.write_bytes(data)
    assert main(["model", "merge", "tiny", "--adapter", str(tmp_path / "none.gguf")]) == 1
    assert "there is no file" in capsys.readouterr().err
    assert main(["model", "merge", "nothing", "--adapter", str(adapter)]) == 1
    assert "no model named 'nothing'" in capsys.readouterr().err
    assert main(["model", "merge", "tiny"]) == 2
    assert "--adapter FILE is missing" in capsys.readouterr().err
    assert files_in(folder) == ["tiny.gguf"]


def test_a_base_that_changed_since_it_was_put_there_is_refused(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    base = write_base(folder / "tiny.gguf")
    modelfile.pin_parts(base, ["0" * 64], "")
    adapter = str(write_adapter(tmp_path / "a.gguf"))
    assert main(["model", "merge", "tiny", "--adapter", adapter]) == 1
    assert f"expected {'0' * 64}" in capsys.readouterr().err
    assert main(["model", "accept", "tiny", "--yes"]) == 0
    assert main(["model", "merge", "tiny", "--adapter", adapter]) == 0


def test_parts_of_a_model_are_refused(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    for number in (1, 2):
        write_base(folder / f"big-{number:05}-of-00002.gguf")
    adapter = str(write_adapter(tmp_path / "a.gguf"))
    assert main(["model", "merge", "big", "--adapter", adapter]) == 1
    assert "is one of 2 parts" in capsys.readouterr().err


def test_without_room_nothing_is_written(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_base(folder / "tiny.gguf")
    adapter = str(write_adapter(tmp_path / "a.gguf"))
    statvfs = os.statvfs(folder)

    class Full:
        f_bavail, f_frsize = 1, statvfs.f_frsize

    monkeypatch.setattr(os, "statvfs", lambda _path: Full)
    assert main(["model", "merge", "tiny", "--adapter", adapter]) == 1
    assert f"has room for {statvfs.f_frsize} bytes" in capsys.readouterr().err
    assert files_in(folder) == ["tiny.gguf"]


def test_a_disk_that_fails_and_an_interruption_leave_nothing(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_base(folder / "tiny.gguf")
    words = ["model", "merge", "tiny", "--adapter", str(write_adapter(tmp_path / "a.gguf"))]

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def interrupted(_self: ProgressLine, _done: int, _total: int) -> None:
        assert any(name.endswith(".part") for name in files_in(folder)), "it was begun"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main(words) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert files_in(folder) == ["tiny.gguf"]
    with monkeypatch.context() as patch:
        patch.setattr(model_merge, "checked", lambda *_: ("1" * 64, "2" * 64))
        patch.setattr(ProgressLine, "show", interrupted)
        assert main(words) == 130
    assert files_in(folder) == ["tiny.gguf"]


def test_without_the_package_gguf_it_says_how_to_install_it(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_base(folder / "tiny.gguf")
    adapter = str(write_adapter(tmp_path / "a.gguf"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert main(["model", "merge", "tiny", "--adapter", adapter]) == 1
    told = capsys.readouterr().err
    assert "package gguf" in told
    assert "'clawd[local]'" in told
    assert files_in(folder) == ["tiny.gguf"]


class TestAssistant:
    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A package with an adapter, and the card of a base that is not there yet."""
        package = tmp_path / "clawd" / "engine" / "embedded"
        package.mkdir(parents=True)
        base = write_base(tmp_path / "base.gguf")
        adapter = write_adapter(package / "assistant-adapter.gguf")
        card = f'[base]\nsha256 = "{sha256(base)}"\n[adapter]\nsha256 = "{sha256(adapter)}"\n'
        (package / "assistant-card.toml").write_text(card)
        monkeypatch.setattr(clawd, "__file__", str(tmp_path / "clawd" / "__init__.py"))
        monkeypatch.setattr(modelfile, "SHARED", tmp_path / "shared")
        return package

    def test_it_is_merged_by_its_name_or_none_and_anew_when_it_is_stale(
        self, folder: Path, tmp_path: Path, package: Path, capsys: Capture
    ) -> None:
        assert main(["model", "merge"]) == 1
        assert "clawctl model pull assistant" in capsys.readouterr().err
        (tmp_path / "base.gguf").rename(folder / "assistant.gguf")
        assert main(["model", "merge"]) == 0
        path = folder / "assistant-merged.gguf"
        made = path.read_bytes()
        assert pin_state(path)[0] == "right"
        assert main(["model", "merge", "assistant"]) == 0
        assert "there already" in capsys.readouterr().out

        adapter = write_adapter(package / "assistant-adapter.gguf", alpha=3.0)
        assert main(["model", "merge"]) == 1, "the card tells of another adapter"
        assert f"{adapter} is not what it was" in capsys.readouterr().err
        assert path.read_bytes() == made
        card = package / "assistant-card.toml"
        card.write_text(card.read_text().rpartition("sha256")[0] + f'sha256 = "{sha256(adapter)}"')
        assert main(["model", "merge"]) == 0
        assert read_head(path).merged_from[1] == sha256(adapter)

        assert main(["model", "rm", "assistant", "--yes"]) == 0
        assert files_in(folder) == []

    def test_the_base_of_the_machine_is_merged_into_the_own_folder(
        self, folder: Path, tmp_path: Path, package: Path
    ) -> None:
        (tmp_path / "shared").mkdir()
        base = (tmp_path / "base.gguf").rename(tmp_path / "shared" / "assistant.gguf")
        assert main(["model", "merge"]) == 0
        assert files_in(folder) == ["assistant-merged.gguf", "assistant-merged.gguf.pin"]
        assert read_head(folder / "assistant-merged.gguf").merged_from[0] == sha256(base)
        assert files_in(base.parent) == ["assistant.gguf"]

    def test_a_base_that_is_not_the_cards_is_refused(
        self, folder: Path, package: Path, capsys: Capture
    ) -> None:
        write_base(folder / "assistant.gguf", general_author="somebody else")
        assert main(["model", "merge"]) == 1
        assert "assistant.gguf is not what it was" in capsys.readouterr().err
        assert files_in(folder) == ["assistant.gguf"]


def test_the_values_that_say_what_it_was_made_of_are_told_once(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_base(folder / "tiny.gguf")
    first, second = (
        write_adapter(tmp_path / name, alpha=alpha) for name, alpha in (("a", 1.0), ("b", 2.0))
    )
    assert main(["model", "merge", "tiny", "--adapter", str(first)]) == 0
    once = folder / "tiny-merged.gguf"
    words = ["model", "merge", str(once), "--adapter", str(second), "--name", "twice"]
    assert main(words) == 0
    assert "Duplicated" not in caplog.text
    assert read_head(folder / "twice.gguf").merged_from == (sha256(once), sha256(second))
    assert len(MERGED_FROM) == 2
