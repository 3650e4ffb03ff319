"""Models at run time on the real thing: list, load, ps, unload, and a file that is none."""

import pytest

from tests.support.engines import is_running
from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = [pytest.mark.daemon, pytest.mark.real_model]


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def test_the_embedded_model_is_listed_loaded_shown_and_unloaded(home: Home) -> None:
    home.configure(provider="local", tables='[model."TINY"]\nctx_size = 1024')
    home.start()
    (line,) = home.json("model", "list")["items"]
    assert (line["name"], line["profile"], line["state"]) == ("embedded", "TINY", "")
    assert home.json("model", "ps") == []

    loaded = home.json("model", "load", "EMBEDDED")
    assert (loaded["name"], loaded["state"]) == ("embedded", "ready")
    assert is_running(loaded["pid"])
    (line,) = home.json("model", "list")["items"]
    assert (line["state"], line["pid"]) == ("ready", loaded["pid"])
    (shown,) = home.json("model", "ps")
    assert (shown["pid"], shown["running"], shown["parallel"]) == (loaded["pid"], 0, 4)
    assert shown["context_size"] == loaded["context_size"] == 1024

    done = home.ctl("agent", "-m", "what is 12 times 7?")
    assert "84" in done.stdout, done.stderr
    (after,) = home.json("model", "ps")
    assert after["pid"] == loaded["pid"]

    assert home.json("model", "unload", "embedded")["message"] == "unloaded embedded"
    assert home.json("model", "ps") == []
    assert not is_running(loaded["pid"])
    again = home.ctl("model", "unload", "embedded")
    assert again.returncode == 1
    assert "model embedded is not loaded; none is" in again.stderr


def test_a_name_that_is_not_there_names_those_that_are(home: Home) -> None:
    home.configure(provider="local")
    home.start()
    for verb in ("load", "unload"):
        done = home.ctl("model", verb, "qwen")
        assert done.returncode == 1
        assert "no model named 'qwen'; there are: embedded" in done.stderr
        assert "clawctl model add" in done.stderr


def test_a_garbage_file_fails_readably_and_the_daemon_serves_on(home: Home) -> None:
    home.configure(provider="local")
    home.start()
    models = home.path / "models"
    models.mkdir(exist_ok=True)
    (models / "garbage.gguf").write_bytes(b"GGUF" + b"\x03\0\0\0" + b"\xff" * 4096)
    (models / "empty.gguf").touch()
    for name in ("garbage", "empty"):
        done = home.ctl("model", "load", name)
        assert done.returncode == 1
        assert f"model {name} cannot be loaded" in done.stderr
        assert "Traceback" not in done.stderr
    assert [each["name"] for each in home.json("model", "list")["items"]] == [
        "embedded",
        "empty",
        "garbage",
    ]
    assert home.json("model", "ps") == []
    assert home.json("model", "load", "embedded")["state"] == "ready"
    assert "84" in home.ctl("agent", "-m", "what is 12 times 7?").stdout


def test_an_adapter_that_does_not_fit_fails_readably_and_the_daemon_serves_on(home: Home) -> None:
    from clawd.engine.embedded import embedded_model_path

    adapters = home.path / "adapters"
    home.configure(provider="local", tables='[model.mine]\nlora = ["adapters/style.gguf:0.5"]')
    home.start()
    models = home.path / "models"
    models.mkdir(exist_ok=True)
    (models / "mine.gguf").write_bytes(embedded_model_path().read_bytes())
    done = home.ctl("agent", "--model", "mine", "-m", "hello")
    assert done.returncode == 1
    assert f"the LoRA adapter {adapters / 'style.gguf'} does not exist" in done.stderr

    adapters.mkdir()
    (adapters / "style.gguf").write_bytes(embedded_model_path().read_bytes())
    done = home.ctl("model", "load", "mine")
    assert done.returncode == 1
    assert str(adapters / "style.gguf") in done.stderr
    assert "expect general.type to be 'adapter'" in done.stderr
    assert "Traceback" not in done.stderr
    assert "84" in home.ctl("agent", "-m", "what is 12 times 7?").stdout


def test_a_preset_of_the_command_line_is_taken_and_an_unknown_one_refused(home: Home) -> None:
    home.configure(provider="local")
    home.start()
    done = home.ctl("agent", "--preset", "deterministic", "-m", "what is 12 times 7?")
    assert "84" in done.stdout, done.stderr
    done = home.ctl("agent", "--preset", "hot", "-m", "what is 12 times 7?")
    assert done.returncode == 1
    assert "no sampling preset 'hot'; there are: deterministic, precise, balanced" in done.stderr


def test_an_added_model_answers_under_every_spelling_with_one_worker(home: Home) -> None:
    from clawd.engine.embedded import embedded_model_path

    home.configure(provider="local")
    added = home.json("model", "add", str(embedded_model_path()), "--name", "My-Model", "--copy")
    assert added["how"] == "copied"
    home.start()
    pids = {
        home.json("model", "load", name)["pid"]
        for name in ("My-Model", "my-model.gguf", added["path"])
    }
    assert len(pids) == 1
    (shown,) = home.json("model", "ps")
    assert shown["name"] == "My-Model"
    assert home.json("model", "unload", "my-model")["message"] == "unloaded My-Model"
