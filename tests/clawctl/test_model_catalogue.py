"""The catalogue of models, and which of them a machine can run."""

import json
import tomllib
from pathlib import Path

import psutil
import pytest

from clawctl.commands.model import _about
from clawctl.main import main
from clawctl.model_catalogue import (
    CATALOGUE,
    Machine,
    catalogue,
    fitting,
    free_ram_bytes,
    look_at_machine,
    read_rate,
)
from clawctl.modelfile import is_remote
from clawd.providers.toolcalls.families import FAMILIES
from tests.clawctl.conftest import Capture
from tests.support.model_server import hub_document, model_bytes, model_server

pytestmark = pytest.mark.usefixtures("own_home")

ROOT = Path(__file__).parents[2]


def test_every_entry_can_be_pulled_fits_its_words_and_names_a_family_that_is_read() -> None:
    families = {family.name for family in FAMILIES} | {""}
    wrong = [
        entry.name
        for entry in catalogue()
        if not is_remote(entry.source)
        or entry.family not in families
        or not 0 < entry.size_gb < entry.memory_gb
        or not 0 < entry.active <= 1
        or entry.name != entry.name.lower()
        or bool(entry.family) != ("tools" in entry.good_for)
        or not entry.licence
    ]
    assert wrong == []
    assert len(catalogue()) > 20


def test_the_catalogue_in_etc_is_the_one_in_the_package() -> None:
    assert (ROOT / "etc" / "models.toml").resolve() == CATALOGUE.resolve()
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "models.toml" in told["tool"]["setuptools"]["package-data"]["clawctl"]


def names(machine: Machine, good_for: str = "") -> list[str]:
    return [fit.name for fit in fitting(catalogue(), machine, good_for)]


def test_what_is_recommended_fits_and_the_best_comes_first() -> None:
    small = names(Machine(ram_gb=3.6, ram_gb_per_s=40.0))
    assert small[0] == "smollm3-3b"
    assert "qwen3-8b" not in small
    assert small[-1] in {"nomic-embed-text", "all-minilm-l6"}
    # Of a large one on slow memory nobody has anything: a quick one goes before it.
    slow = names(Machine(ram_gb=64.0, ram_gb_per_s=20.0))
    assert slow.index("lfm2-1.2b") < slow.index("llama3.3-70b")
    assert fitting(catalogue(), Machine(ram_gb=0.1)) == []
    assert names(Machine(ram_gb=64.0), "embeddings") == ["nomic-embed-text", "all-minilm-l6"]


def test_the_estimate_is_bandwidth_over_what_a_token_reads() -> None:
    machine = Machine(ram_gb=64.0, ram_gb_per_s=50.3, vram_gb=8.0, vram_gb_per_s=503.0)
    fits = {fit.name: (fit.place, fit.tokens_per_s) for fit in fitting(catalogue(), machine)}
    assert fits["qwen3-8b"] == ("gpu", 100.0)
    assert fits["qwen3-14b"] == ("cpu", 5.6)
    assert fits["qwen3-30b-a3b"] == ("cpu", 24.6)


def test_memory_is_what_is_free_within_every_cgroup_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    free = psutil.virtual_memory()._replace(available=8_192_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert free_ram_bytes(tmp_path) == 8_192_000
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/a/b\n")
    group = tmp_path / "sys" / "fs" / "cgroup" / "a"
    (group / "b").mkdir(parents=True)
    (group / "b" / "memory.max").write_text("max\n")
    (group / "memory.max").write_text("5000000\n")
    (group / "memory.current").write_text("1000000\n")
    assert free_ram_bytes(tmp_path) == 4_000_000


def test_this_machine_is_measured() -> None:
    assert read_rate(0.02) > 0
    assert read_rate(0.0) > 0, "a busy machine may let the time pass before it reads"
    machine = look_at_machine(probe_s=0.0)
    assert machine.ram_gb > 0
    assert machine.ram_gb_per_s == 0.0
    assert machine.gpu


def test_a_small_model_is_not_said_to_take_nothing(capsys: Capture) -> None:
    assert main(["model", "list", "--available"]) == 0
    assert main(["model", "recommend", "--no-probe", "--for", "embeddings"]) == 0
    out = capsys.readouterr().out
    sizes = [line.split()[1:3] for line in out.splitlines() if line.startswith("all-minilm-l6")]
    assert sizes == [["30.0", "MB"]] * 2
    assert " 0.0 GB" not in out


def test_an_estimated_speed_has_as_many_digits_as_it_is_worth() -> None:
    speeds = {0.0: "-", 2.26: "~2.3", 12.7: "~13", 1_280.4: "~1280", 31_200.0: "~31200"}
    assert {speed: _about(speed) for speed in speeds} == speeds


def test_lists_and_recommendations_are_told(capsys: Capture) -> None:
    assert main(["model", "list", "--available"]) == 0
    assert "qwen3-8b" in capsys.readouterr().out
    assert main(["model", "recommend", "--no-probe", "--for", "embeddings", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in told["models"]} <= {"nomic-embed-text", "all-minilm-l6"}
    assert told["machine"]["ram_gb"] > 0


def test_a_name_of_the_catalogue_is_pulled_from_its_source(
    monkeypatch: pytest.MonkeyPatch, home: Path, capsys: Capture
) -> None:
    data = model_bytes(3_000)
    with model_server() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        path = "/api/models/Qwen/Qwen3-8B-GGUF/revision/main?blobs=true"
        hub.documents[path] = hub_document({"Qwen3-8B-Q4_K_M.gguf": data})
        hub.files["/Qwen/Qwen3-8B-GGUF/resolve/c0ffee/Qwen3-8B-Q4_K_M.gguf"] = data
        assert main(["model", "pull", "Qwen3-8B"]) == 0
    assert (home / "models" / "Qwen3-8B-Q4_K_M.gguf").read_bytes() == data
    assert main(["model", "pull", "qwen9"]) == 1
    assert "model list --available" in capsys.readouterr().err
