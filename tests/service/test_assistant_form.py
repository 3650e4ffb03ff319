"""In which form the packaged assistant is loaded, base and adapter or one file; what is told."""

from pathlib import Path

import pytest

from clawctl import model_merge
from clawctl.progress import ProgressLine
from clawd.config.load import load
from clawd.engine import embedded
from clawd.engine.models import MERGED_FILE, CallThresholds
from clawd.engine.protocol import LoraAdapter
from clawd.service.lifecycle import checkup
from clawd.service.state import LocalModels
from clawd.wire.daemon import Status
from clawd.wire.models import ListModels, ShowModel
from tests.support.inprocess import OWNER, daemon_in
from tests.support.lora_gguf import sha256, write_adapter, write_base

ANSWERS = 'default_provider = "own"\n[providers.models.own]\nkind = "local"\n'


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the base of a package that has an adapter over it."""
    package, models = tmp_path / "package", tmp_path / "home" / "models"
    for folder in (package, models):
        folder.mkdir(mode=0o700, parents=True)
    base = write_base(models / "assistant.gguf")
    adapter = write_adapter(package / "assistant-adapter.gguf")
    (package / "assistant.jinja").write_text("{{ messages }}")
    (package / "assistant-card.toml").write_text(
        f'is_default = true\n[base]\nsha256 = "{sha256(base)}"\n'
        f'[adapter]\nsha256 = "{sha256(adapter)}"\n[calls]\nfirst = 0.3\nfurther = 0.9\n'
    )
    monkeypatch.setattr(embedded, "embedded_model_path", lambda: package / "clawd-tiny.gguf")
    return models


def merge(models: Path, adapter: Path) -> Path:
    """Make one file of both, whether the card knows that adapter or not."""
    wanted = model_merge.Merge(
        base=models / "assistant.gguf", adapter=adapter, target=models / MERGED_FILE
    )
    digests = model_merge.checked(wanted, ("", ""), lambda _done, _total: None)
    model_merge.merge(wanted, digests, ProgressLine("", quiet=True), force=True)
    return wanted.target


def test_it_is_loaded_from_one_file_once_there_is_one_and_as_the_user_says_else(
    models: Path, tmp_path: Path
) -> None:
    home = models.parent
    text = f"{ANSWERS}[model.assistant]\nn_threads = 3\nlora = ['/mine.gguf:0.5']\n"
    (home / "config.toml").write_text(text)
    found = LocalModels(load(None, {"HOME": str(tmp_path), "CLAWD_HOME": str(home)}))
    adapter = tmp_path / "package" / "assistant-adapter.gguf"
    mine = LoraAdapter(path="/mine.gguf", scale=0.5)

    assert found.find("auto").calls == CallThresholds(first=0.3, further=0.9)
    assert found.find("embedded").calls == CallThresholds()
    two = found.find("auto").config
    assert (two.alias, two.path) == ("assistant", str(models / "assistant.gguf"))
    assert two.lora == (LoraAdapter(path=str(adapter)), mine)
    assert "`clawctl model merge`" in found.form()
    assert found.shortfall("auto") == ""

    path = merge(models, adapter)
    one = found.find("auto").config
    assert (one.alias, one.path, one.lora) == ("assistant", str(path), (mine,))
    assert one.template_file == two.template_file != ""
    assert (one.n_threads, one.kv_unified) == (two.n_threads, two.kv_unified) == (3, "on")
    assert found.form() == f"base and adapter in one file, {path.name}"
    assert found.shortfall("auto") == ""

    merge(models, write_adapter(tmp_path / "other.gguf", alpha=1.0))
    assert found.find("assistant").config == two
    for told in (found.form(), found.shortfall("auto"), found.shortfall("Assistant")):
        assert "made of another base, or of another adapter" in told
        assert "`clawctl model merge` makes it anew" in told
    assert found.shortfall("embedded") == ""


async def test_show_list_status_and_checkup_tell_which_form_it_has(
    models: Path, tmp_path: Path
) -> None:
    adapter = tmp_path / "package" / "assistant-adapter.gguf"
    table = '[providers.models.own]\nkind = "local"\n'
    async with daemon_in(tmp_path, table) as inside:
        config = models.parent / "config.toml"
        text = config.read_text().replace('default_provider = "mock"', 'default_provider = "own"')
        config.write_text(text)
        await inside.daemon.reload()
        environ = {"HOME": str(tmp_path), "CLAWD_HOME": str(models.parent)}

        shown = await inside.ask(ShowModel(name="assistant"), OWNER)
        assert shown.adapters == (str(adapter),)
        assert shown.form.startswith("base and adapter; ")
        path = merge(models, adapter)
        shown = await inside.ask(ShowModel(name="assistant"), OWNER)
        assert (shown.path, shown.adapters) == (str(path), ())
        assert (shown.quantization, shown.pin, shown.sha256) == ("Q8_0", "right", sha256(path))
        assert shown.form == "base and adapter in one file, assistant-merged.gguf"
        assert (await checkup(None, environ)).model_form == shown.form
        assert (await inside.ask(Status(), OWNER)).model_note == ""
        listed = await inside.ask(ListModels(), OWNER)
        assert [line.name for line in listed.items] == ["embedded", "assistant"]

        path.write_bytes(path.read_bytes()[:-1])
        note = (await inside.ask(Status(), OWNER)).model_note
        assert "it is damaged" in note
        assert (await checkup(None, environ)).model_form == note
        shown = await inside.ask(ShowModel(name="assistant"), OWNER)
        assert (shown.form, shown.path) == (note, str(models / "assistant.gguf"))
        shown = await inside.ask(ShowModel(name="embedded"), OWNER)
        assert shown.form == ""
