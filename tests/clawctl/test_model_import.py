"""`clawctl model import`: models as Ollama, LM Studio, the hub's tools and llama.cpp keep them."""

import hashlib
import json
from pathlib import Path

import pytest

from clawctl.main import main
from clawctl.model_import import find_models
from clawd.engine.models import ModelFolder, pin_state
from clawd.wire.models import decode_pin, pin_of
from tests.clawctl.conftest import Capture
from tests.support.model_server import model_bytes

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "models"


def put(path: Path, seed: int, size: int = 3_000) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = model_bytes(size, seed)
    path.write_bytes(data)
    return data


def as_ollama(place: Path, name: str, seed: int, *, projector: bool = False) -> Path:
    """Lay a model out as Ollama does; return its blob."""
    layers = [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0"}]
    kinds = ["model", "projector"] if projector else ["model"]
    blobs = []
    for number, kind in enumerate(kinds):
        data = model_bytes(3_000, seed + number)
        digest = hashlib.sha256(data).hexdigest()
        blobs.append(place / "blobs" / f"sha256-{digest}")
        put(blobs[-1], seed + number)
        layers.append(
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}"}
        )
    manifest = place / "manifests" / "registry.ollama.ai" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blobs[0]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A user's home in which four programs keep models; return their files."""
    for name in ("OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    ollama = tmp_path / ".ollama" / "models"
    lm_studio = tmp_path / ".lmstudio" / "models"
    files = {
        "qwen3-4b": as_ollama(ollama, "library/qwen3/4b", 1, projector=True),
        "me-mine": as_ollama(ollama, "me/mine/latest", 10),
        "Gemma-Q4": lm_studio / "lmstudio-community" / "gemma-GGUF" / "Gemma-Q4.gguf",
        "Big": lm_studio / "x" / "big-GGUF" / "Big-00001-of-00002.gguf",
    }
    put(files["Gemma-Q4"], 20)
    put(files["Gemma-Q4"].with_name("mmproj-Gemma-F16.gguf"), 21)
    put(files["Big"], 22)
    put(files["Big"].with_name("Big-00002-of-00002.gguf"), 23)
    hub = tmp_path / ".cache" / "huggingface" / "hub" / "models--org--tiny"
    data = model_bytes(3_000, 30)
    blob = hub / "blobs" / hashlib.sha256(data).hexdigest()
    put(blob, 30)
    link = hub / "snapshots" / "c0ffee" / "Tiny-Q8_0.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    files["Tiny-Q8_0"] = blob
    files["org_repo_a"] = tmp_path / ".cache" / "llama.cpp" / "org_repo_a.gguf"
    put(files["org_repo_a"], 40)
    return files


def test_what_other_programs_have_is_listed_with_where_from(
    machine: dict[str, Path], capsys: Capture, folder: Path
) -> None:
    assert main(["model", "import", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {each["name"]: each["program"] for each in listed} == {
        "qwen3-4b": "Ollama",
        "me-mine": "Ollama",
        "Gemma-Q4": "LM Studio",
        "Big": "LM Studio",
        "Tiny-Q8_0": "Hugging Face",
        "org_repo_a": "llama.cpp",
    }
    assert not folder.exists()


def test_all_are_linked_not_copied_pinned_and_found_by_the_engine(
    machine: dict[str, Path], folder: Path, capsys: Capture
) -> None:
    assert main(["model", "import", "--all"]) == 0
    here = ModelFolder(folder)
    assert here.names()[1:] == sorted(machine)
    for name, file in machine.items():
        path = here.find(name)
        assert path.samefile(file)
        assert pin_state(path)[0] == "right"
    digest = decode_pin(pin_of(folder / "qwen3-4b.gguf").read_bytes()).sha256
    assert machine["qwen3-4b"].name == f"sha256-{digest}"
    eyes = sorted(path.name for path in folder.glob("mmproj-*.gguf"))
    assert eyes == ["mmproj-Gemma-Q4.gguf", "mmproj-qwen3-4b.gguf"]


def test_a_file_that_its_program_rewrites_is_noticed(
    machine: dict[str, Path], folder: Path
) -> None:
    assert main(["model", "import", "GEMMA-q4", "qwen3-4b"]) == 0
    for name in ("Gemma-Q4", "qwen3-4b"):
        with machine[name].open("r+b") as file:
            file.seek(1_000)
            file.write(b"\0")
        assert pin_state(folder / f"{name}.gguf")[0] == "changed"


def test_where_no_hard_link_can_be_the_name_is_linked(
    machine: dict[str, Path], folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("another disk")

    monkeypatch.setattr("clawctl.modelfile.os.link", refuse)
    assert main(["model", "import", "Big", "Tiny-Q8_0"]) == 0
    assert "linked by name" in capsys.readouterr().out
    assert (folder / "Big-00002-of-00002.gguf").is_symlink()
    # Straight to the content: a snapshot's own links may go.
    assert (folder / "Tiny-Q8_0.gguf").readlink() == machine["Tiny-Q8_0"]
    assert main(["model", "rm", "Big", "--yes"]) == 0
    assert machine["Big"].exists()
    assert sorted(path.name for path in folder.iterdir()) == [
        "Tiny-Q8_0.gguf",
        "Tiny-Q8_0.gguf.pin",
    ]


def test_another_place_is_looked_through_by_its_layout(tmp_path: Path, capsys: Capture) -> None:
    as_ollama(tmp_path / "moved", "library/llama3.2/latest", 1)
    put(tmp_path / "plain" / "x" / "Some.gguf", 2)
    names = {
        place: [each.name for each in find_models({}, tmp_path / place)]
        for place in ("moved", "plain")
    }
    assert names == {"moved": ["llama3.2"], "plain": ["Some"]}
    assert main(["model", "import", "--from", str(tmp_path / "plain"), "none"]) == 1
    assert "there are: Some" in capsys.readouterr().err


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        '{"layers": 3}',
        '{"layers": [1, {"mediaType": 5}]}',
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model", '
        '"digest": "sha256:../../../../etc/passwd"}]}',
    ],
)
def test_a_manifest_that_is_none_names_nothing(tmp_path: Path, manifest: str) -> None:
    as_ollama(tmp_path, "library/a/b", 1)
    (tmp_path / "manifests" / "registry.ollama.ai" / "library" / "a" / "b").write_text(manifest)
    assert find_models({}, tmp_path) == []


def test_a_name_that_is_taken_stays(machine: dict[str, Path], folder: Path) -> None:
    folder.mkdir()
    (folder / "Big-00001-of-00002.gguf").write_bytes(b"precious")
    assert main(["model", "import", "Big"]) == 1
    assert (folder / "Big-00001-of-00002.gguf").read_bytes() == b"precious"
    assert main(["model", "import", "Big", "--force"]) == 0
