"""`clawctl model`: list, load, unload and ps over a fake daemon; add on real files."""

import hashlib
import struct
import threading
from pathlib import Path

import msgspec
import pytest

from clawctl import modelfile
from clawctl.main import main
from clawd.engine.models import pin_state
from clawd.errors import ModelNotFoundError, NotFoundError, StorageError
from clawd.wire.events import ModelLoading
from clawd.wire.method import Done
from clawd.wire.models import (
    ListModels,
    LoadedModel,
    LoadedModelList,
    LoadModel,
    ModelDetail,
    ModelLine,
    ModelList,
    UnloadModel,
)
from tests.clawctl.conftest import Capture, json_of
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.terminal import Spawn, code_of

GGUF = struct.pack("<4sI", b"GGUF", 3) + bytes(range(256)) * 20

LOADED = LoadedModel(
    name="embedded",
    path="/e.gguf",
    pid=77,
    state="ready",
    running=1,
    context_size=2048,
    parallel=4,
    parameters=1_500_000,
    size_bytes=2_100_000,
    load_ms=12.5,
    fence="landlock+seccomp",
    last_used_at="2026-01-02T03:04:05Z",
    completion_tokens=400,
    drafted_tokens=200,
    accepted_tokens=100,
    warm_tokens=1004,
    warm_ready=9,
)


pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "models"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "Tiny-Q8.gguf"
    made.write_bytes(GGUF)
    return made


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".pin")


def listing(folder: Path) -> ModelList:
    return ModelList(
        folder=str(folder),
        items=(
            ModelLine(name="embedded", path="/e.gguf", size_bytes=2_100_000, state="ready", pid=77),
            ModelLine(name="Qwen3-8B", path="/q.gguf", size_bytes=4_900_000_000, profile="qwen3"),
        ),
    )


class TestWithADaemon:
    def test_list_shows_size_what_is_loaded_and_the_profile(
        self, daemon: FakeDaemon, folder: Path, capsys: Capture
    ) -> None:
        daemon.handlers["list_models"] = listing(folder)
        assert main(["model", "list"]) == 0
        printed = capsys.readouterr()
        assert [line.split() for line in printed.out.splitlines()] == [
            ["NAME", "SIZE", "LOADED", "PROFILE"],
            ["embedded", "2.1", "MB", "ready", "-"],
            ["Qwen3-8B", "4.9", "GB", "no", "qwen3"],
        ]
        assert printed.err == f"Files are in {folder}\n"
        default = msgspec.structs.replace(listing(folder), default="Qwen3-8B")
        daemon.handlers["list_models"] = default
        assert main(["model", "list"]) == 0
        assert "Answers come from Qwen3-8B\n" in capsys.readouterr().err
        daemon.handlers["list_models"] = msgspec.structs.replace(default, default="gone")
        assert main(["model", "list"]) == 0
        told = capsys.readouterr().err
        assert "come from gone, which is not there. Choose another: clawctl model use NAME" in told

    def test_list_as_json_is_the_whole_report(
        self, daemon: FakeDaemon, folder: Path, capsys: Capture
    ) -> None:
        daemon.handlers["list_models"] = listing(folder)
        document = json_of(capsys, "model", "list", "--json")
        assert isinstance(document, dict)
        assert document["folder"] == str(folder)
        assert document["items"][1] == {
            "name": "Qwen3-8B",
            "path": "/q.gguf",
            "size_bytes": 4_900_000_000,
            "profile": "qwen3",
            "state": "",
            "pid": 0,
        }

    def test_load_says_what_was_loaded(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["load_model"] = LOADED
        assert main(["model", "load", "Embedded"]) == 0
        printed = capsys.readouterr()
        assert printed.out == "loaded embedded: 1.5 M parameters, context 2048, pid 77\n"
        assert printed.err == ""
        assert daemon.calls_of(LoadModel) == [LoadModel(name="Embedded")]
        document = json_of(capsys, "model", "load", "embedded", "--json")
        assert isinstance(document, dict)
        assert (document["pid"], document["context_size"]) == (77, 2048)

    def test_load_draws_how_far_it_is_on_a_terminal(self, daemon: FakeDaemon, spawn: Spawn) -> None:
        is_measured, is_told = threading.Event(), threading.Event()

        def load(call: Call) -> LoadedModel:
            # The first second draws nothing, and what comes at once is drawn once.
            for done, seen in ((3, is_measured), (4, is_told)):
                loading = ModelLoading(model="big", loaded_bytes=done << 30, total_bytes=4 << 30)
                while not seen.wait(0.2) and not call.gone.is_set():
                    call.emit(loading)
            return LOADED

        daemon.handlers["load_model"] = load
        child = spawn("model", "load", "big")
        child.expect("loading big .* 75 % .* of 4.3 GB")
        is_measured.set()
        child.expect(r"loading big \S \d+ s")
        is_told.set()
        child.expect("loaded embedded")
        assert code_of(child) == 0

    def test_a_name_that_is_not_there_names_those_that_are(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        def refuse(_call: Call) -> LoadedModel:
            raise ModelNotFoundError("no model named 'x'; there are: embedded", hint="Add one.")

        daemon.handlers["load_model"] = refuse
        assert main(["model", "load", "x"]) == 1
        assert "there are: embedded" in capsys.readouterr().err
        document = json_of(capsys, "model", "load", "x", "--json", code=1)
        assert isinstance(document, dict)
        assert document["error"]["code"] == "model_not_found"

    def test_unload(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["unload_model"] = Done(message="unloaded embedded")
        assert main(["model", "unload", "embedded"]) == 0
        assert capsys.readouterr().out == "unloaded embedded\n"
        assert daemon.calls_of(UnloadModel) == [UnloadModel(name="embedded")]
        assert json_of(capsys, "model", "unload", "embedded", "--json") == {
            "ok": True,
            "message": "unloaded embedded",
        }

    def test_unloading_what_is_not_loaded_fails(self, daemon: FakeDaemon, capsys: Capture) -> None:
        def refuse(_call: Call) -> Done:
            raise NotFoundError("model x is not loaded; none is")

        daemon.handlers["unload_model"] = refuse
        assert main(["model", "unload", "x"]) == 1
        assert "not loaded" in capsys.readouterr().err

    def test_ps_shows_pid_context_and_what_runs(self, daemon: FakeDaemon, capsys: Capture) -> None:
        stopped = LoadedModel(name="bad", path="/b.gguf", pid=0, state="stopped", deaths=2)
        odd = msgspec.structs.replace(LOADED, template_notes=("it drops\ntool calls",))
        daemon.handlers["list_loaded_models"] = LoadedModelList(items=(odd, stopped))
        assert main(["model", "ps"]) == 0
        told = capsys.readouterr()
        assert told.err == "the chat template of embedded: it drops‹U+000A›tool calls\n"
        assert [" ".join(line.split()) for line in told.out.splitlines()] == [
            "NAME STATE RUNNING CONTEXT SIZE TOKENS LAST USED PID GUESSED WARM FENCE",
            "embedded ready 1 2048 2.1 MB 400 2026-01-02T03:04:05 77 25 % 9/1004 landlock+seccomp",
            "bad stopped 0 - - 0 - - - -",
        ]
        document = json_of(capsys, "model", "ps", "--json")
        assert isinstance(document, list)
        assert (document[0]["running"], document[1]["deaths"]) == (1, 2)

    def test_ps_of_nothing(self, daemon: FakeDaemon, capsys: Capture) -> None:
        daemon.handlers["list_loaded_models"] = LoadedModelList(items=())
        assert main(["model", "ps"]) == 0
        assert capsys.readouterr().out == "No model is loaded.\n"

    def test_add_goes_to_the_folder_of_the_daemon_that_answers(
        self, daemon: FakeDaemon, tmp_path: Path, file: Path, capsys: Capture
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        daemon.handlers["list_models"] = listing(elsewhere)
        assert main(["model", "add", str(file)]) == 0
        assert (elsewhere / file.name).read_bytes() == GGUF
        assert len(daemon.calls_of(ListModels)) == 1


class TestAdd:
    def test_a_file_is_linked_and_found_under_its_name(
        self, folder: Path, file: Path, capsys: Capture
    ) -> None:
        assert main(["model", "add", str(file)]) == 0
        assert capsys.readouterr().out == f"Tiny-Q8 (5.1 kB) is in {folder}: hard-linked\n"
        assert (folder / file.name).samefile(file)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert names_in(folder) == ["Tiny-Q8.gguf"]

    def test_a_copy_is_a_file_of_its_own(self, folder: Path, file: Path, capsys: Capture) -> None:
        document = json_of(capsys, "model", "add", str(file), "--copy", "--name", "mine", "--json")
        assert document == {
            "name": "mine",
            "path": str(folder / "mine.gguf"),
            "size_bytes": len(GGUF),
            "how": "copied",
            "replaced": False,
            "sha256": hashlib.sha256(GGUF).hexdigest(),
            "source": str(file),
        }
        assert (folder / "mine.gguf").read_bytes() == GGUF
        assert not (folder / "mine.gguf").samefile(file)
        assert names_in(folder) == ["mine.gguf"]

    def test_a_link_is_followed(self, folder: Path, file: Path, tmp_path: Path) -> None:
        link = tmp_path / "link.gguf"
        link.symlink_to(file)
        assert main(["model", "add", str(link)]) == 0
        assert not (folder / "link.gguf").is_symlink()
        assert (folder / "link.gguf").samefile(file)

    def test_a_name_that_is_taken_is_not_overwritten(
        self, folder: Path, file: Path, capsys: Capture
    ) -> None:
        folder.mkdir()
        taken = folder / file.name
        taken.write_bytes(b"precious")
        assert main(["model", "add", str(file)]) == 1
        assert "--force" in capsys.readouterr().err
        assert taken.read_bytes() == b"precious"
        assert main(["model", "add", str(file), "--force"]) == 0
        assert "clawctl model unload Tiny-Q8" in capsys.readouterr().err
        assert taken.read_bytes() == GGUF
        assert names_in(folder) == [file.name]

    @pytest.mark.parametrize("options", [[], ["--force"], ["--copy"]])
    def test_adding_what_is_there_changes_nothing(
        self, folder: Path, file: Path, capsys: Capture, options: list[str]
    ) -> None:
        assert main(["model", "add", str(file)]) == 0
        assert main(["model", "add", str(folder / file.name), *options]) == 0
        assert "there already" in capsys.readouterr().out
        assert names_in(folder) == [file.name]

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"", "it begins with b''"),
            (b"GGU", "it begins with b'GGU'"),
            (b"version https://git-lfs", "it begins with b'vers'"),
            (struct.pack("<4sI", b"GGUF", 1), "version 1"),
            (struct.pack(">4sI", b"GGUF", 3), "version 50331648"),
        ],
    )
    def test_what_is_no_gguf_is_refused(
        self, folder: Path, tmp_path: Path, capsys: Capture, content: bytes, problem: str
    ) -> None:
        bad = tmp_path / "bad.gguf"
        bad.write_bytes(content)
        assert main(["model", "add", str(bad)]) == 1
        printed = capsys.readouterr().err
        assert problem in printed
        assert "hint:" in printed
        assert not folder.exists()

    @pytest.mark.parametrize("name", ["embedded", "Embedded.gguf", "../up", ".hidden", " ", "a\0"])
    def test_a_name_that_cannot_be_one_is_refused(
        self, folder: Path, file: Path, capsys: Capture, name: str
    ) -> None:
        assert main(["model", "add", str(file), "--name", name]) == 1
        assert "name" in capsys.readouterr().err
        assert not folder.exists()

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path, capsys: Capture) -> None:
        assert main(["model", "add", str(tmp_path / "none.gguf")]) == 1
        assert f"there is no file {tmp_path}/none.gguf" in capsys.readouterr().err

    def test_of_a_split_model_every_part_is_added(
        self, folder: Path, tmp_path: Path, capsys: Capture
    ) -> None:
        names = [f"big-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
        for name in names[:2]:
            (tmp_path / name).write_bytes(GGUF)
        assert main(["model", "add", str(tmp_path / names[1])]) == 1
        assert f"there is no file {tmp_path}/{names[2]}" in capsys.readouterr().err
        assert not folder.exists()
        (tmp_path / names[2]).write_bytes(GGUF)
        document = json_of(capsys, "model", "add", str(tmp_path / names[1]), "--json")
        assert isinstance(document, dict)
        assert (document["name"], document["size_bytes"]) == ("big", 3 * len(GGUF))
        assert names_in(folder) == names

    def test_a_folder_that_may_not_be_written_is_told_and_nothing_is_left(
        self, folder: Path, file: Path, capsys: Capture
    ) -> None:
        folder.parent.rmdir()
        folder.parent.write_text("a file where the home should be")
        assert main(["model", "add", str(file)]) == 1
        assert str(file) in capsys.readouterr().err

    def test_without_room_nothing_is_copied(self, folder: Path, file: Path) -> None:
        with file.open("ab") as sparse:
            sparse.truncate(1 << 42)

        def not_a_byte(done: int, _total: int) -> None:
            raise AssertionError(f"{done} bytes were copied")

        options = modelfile.AddOptions(copy=True)
        with pytest.raises(StorageError, match=f"the model has {1 << 42}"):
            modelfile.add_model(file, folder, options, not_a_byte)
        assert names_in(folder) == []

    def test_an_interrupted_copy_leaves_nothing(self, folder: Path, file: Path) -> None:
        def interrupt(_done: int, _total: int) -> None:
            raise KeyboardInterrupt

        options = modelfile.AddOptions(copy=True)
        with pytest.raises(KeyboardInterrupt):
            modelfile.add_model(file, folder, options, interrupt)
        assert names_in(folder) == []


class TestOfTheFolder:
    @pytest.mark.parametrize("named", ["", "models", "/mod\0els"])
    def test_a_daemon_that_names_no_folder_is_refused(
        self, daemon: FakeDaemon, file: Path, named: str, capsys: Capture
    ) -> None:
        daemon.handlers["list_models"] = ModelList(folder=named, items=())
        for words in (["add", str(file)], ["rm", "x", "--yes"], ["accept", "x"]):
            assert main(["model", *words]) == 1
            assert "names no folder for models" in capsys.readouterr().err

    def test_rm_asks_and_takes_all_that_belongs_to_a_model(
        self, folder: Path, file: Path, capsys: Capture
    ) -> None:
        assert main(["model", "add", str(file)]) == 0
        assert main(["model", "add", str(file), "--copy", "--name", "mmproj-Tiny-Q8"]) == 0
        assert main(["model", "add", str(file), "--name", "other"]) == 0
        assert main(["model", "rm", "tiny-q8"]) == 2
        assert "Say so with --yes" in capsys.readouterr().err
        assert main(["model", "rm", "tiny-q8", "--yes"]) == 0
        assert sorted(path.name for path in folder.iterdir()) == ["other.gguf", "other.gguf.pin"]
        assert file.read_bytes() == GGUF
        assert main(["model", "rm", "tiny-q8", "--yes"]) == 1
        told = capsys.readouterr().err
        assert "there are: other" in told
        assert "clawctl model add FILE" in told

    def test_rm_lets_a_daemon_unload_it_first(
        self, daemon: FakeDaemon, folder: Path, file: Path
    ) -> None:
        daemon.handlers["list_models"] = listing(folder)
        daemon.handlers["unload_model"] = Done(message="unloaded")
        assert main(["model", "add", str(file)]) == 0
        assert main(["model", "rm", "Tiny-Q8", "--yes"]) == 0
        assert daemon.calls_of(UnloadModel) == [UnloadModel(name="Tiny-Q8")]
        assert names_in(folder) == []

    def test_rm_says_that_answers_come_from_it(
        self, daemon: FakeDaemon, folder: Path, file: Path, capsys: Capture
    ) -> None:
        daemon.handlers["list_models"] = ModelList(folder=str(folder), items=(), default="Tiny-Q8")
        daemon.handlers["unload_model"] = Done(message="unloaded")
        assert main(["model", "add", str(file)]) == 0
        assert main(["model", "rm", "tiny-q8"]) == 2
        assert "from which answers come? Say so with --yes" in capsys.readouterr().err
        assert main(["model", "rm", "tiny-q8", "--yes"]) == 0
        assert "Choose another: clawctl model use NAME" in capsys.readouterr().err

    def test_a_changed_file_is_accepted_by_word_or_by_its_digest_only(
        self, folder: Path, file: Path, capsys: Capture
    ) -> None:
        assert main(["model", "add", str(file), "--copy"]) == 0
        path = folder / file.name
        old = hashlib.sha256(GGUF).hexdigest()
        assert main(["model", "accept", "Tiny-Q8"]) == 0
        assert f"is the one that was pinned: {old}" in capsys.readouterr().out
        path.write_bytes(GGUF + b"x")
        new = hashlib.sha256(GGUF + b"x").hexdigest()
        assert main(["model", "accept", "Tiny-Q8"]) == 2
        assert f"pinned {old}, now {new}" in capsys.readouterr().err
        assert main(["model", "accept", "Tiny-Q8", "--sha256", old]) == 1
        assert pin_state(path)[0] == "changed"
        assert main(["model", "accept", "Tiny-Q8", "--sha256", new]) == 0
        assert pin_state(path)[0] == "right"

    def test_use_names_it_in_the_config_and_nothing_that_is_not_there(
        self, folder: Path, file: Path, home: Path, capsys: Capture, clawd_inside: None
    ) -> None:
        assert main(["init"]) == 0
        config = home / "config.toml"
        before = config.read_bytes()
        assert main(["model", "use", "Tiny-Q8"]) == 1
        assert config.read_bytes() == before
        assert main(["model", "add", str(file)]) == 0
        assert main(["model", "use", "tiny-q8.gguf"]) == 0
        assert "Answers come from Tiny-Q8" in capsys.readouterr().out
        assert 'default_model = "Tiny-Q8"' in config.read_text()
        assert json_of(capsys, "model", "use", "Tiny-Q8", "--json") == {
            "path": str(config),
            "changed": False,
            "reloaded": False,
            "message": "Nothing was changed.",
        }
        assert main(["model", "use", "embedded"]) == 0
        assert 'default_model = "embedded"' in config.read_text()

    def test_show_tells_in_words_how_a_file_is_to_its_pin(
        self, daemon: FakeDaemon, capsys: Capture
    ) -> None:
        daemon.handlers["show_model"] = ModelDetail(
            name="q", path="/q.gguf", size_bytes=5, template_family="hermes", tools=True,
            pin="changed",
        )  # fmt: skip
        assert main(["model", "show", "q"]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "tool calls hermes" in printed
        assert "THE FILE CHANGED" in printed
        assert "images no" in printed
        daemon.handlers["show_model"] = ModelDetail(
            name="q", path="/q.gguf", size_bytes=5, vision="/mmproj-q.gguf", vision_pin="changed",
            vision_sha256="beef",
        )  # fmt: skip
        assert main(["model", "show", "q"]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "images /mmproj-q.gguf" in printed
        assert "beef (THE FILE CHANGED)" in printed
