"""The packaged assistant: which files make it, when it is used, what is told where it is not."""

import hashlib
from pathlib import Path

import gguf
import pytest
from bootstrap import models as models_of_setup

from clawctl.model_catalogue import entry_of
from clawd.engine.embedded import embedded_model_path
from clawd.engine.models import (
    BASE_FILE,
    MERGED_FILE,
    PULL,
    TOY_FIRST,
    Assistant,
    CallThresholds,
    ModelFolder,
    packaged_assistant,
)
from clawd.errors import ModelLoadError, ModelNotFoundError
from clawd.wire.models import MERGED_FROM, ModelPin, encode_pin, pin_of

BASE, ADAPTER = b"GGUF the base", b"GGUF the adapter"


def card_of(base: bytes, adapter: bytes) -> str:
    digests = {"base": base, "adapter": adapter}
    return "is_default = true\n" + "".join(
        f'[{name}]\nsha256 = "{hashlib.sha256(data).hexdigest()}"\n'
        for name, data in digests.items()
    )


@pytest.fixture
def models(tmp_path: Path) -> ModelFolder:
    """A folder with the base, another without, and a package that is whole."""
    for name in ("own", "shared", "package"):
        (tmp_path / name).mkdir()
    package = tmp_path / "package"
    (package / "adapter.gguf").write_bytes(ADAPTER)
    (package / "template.jinja").write_text("{{ messages }}")
    (package / "card.toml").write_text(card_of(BASE, ADAPTER))
    (tmp_path / "own" / BASE_FILE).write_bytes(BASE)
    assistant = Assistant(
        adapter=package / "adapter.gguf",
        template=package / "template.jinja",
        card=package / "card.toml",
    )
    return ModelFolder(tmp_path / "own", shared=tmp_path / "shared", assistant=assistant)


def test_the_card_says_from_which_probability_on_an_answer_begins_with_a_call(
    models: ModelFolder, tmp_path: Path
) -> None:
    card = tmp_path / "package" / "card.toml"
    assert models.assistant.call_thresholds() == CallThresholds()
    text = "[calls]\nfirst = 0.3\nfurther = 0.9\nchange = 0.2\n"
    card.write_text(card.read_text() + text)
    wanted = CallThresholds(first=0.3, further=0.9, change=0.2)
    assert models.assistant.call_thresholds() == wanted
    for odd in ('[calls]\nfirst = "often"\n', "[calls\n", "calls = 3\n"):
        card.write_text(odd)
        assert models.assistant.call_thresholds() == CallThresholds()
    card.unlink()
    assert models.assistant.call_thresholds() == CallThresholds()

    packaged = packaged_assistant().call_thresholds()
    assert packaged.first is not None
    assert packaged.further is not None
    assert 0 < packaged.first < packaged.further < 1
    assert 0 < packaged.change < 1


def test_auto_is_the_assistant_where_its_base_and_its_adapter_are(
    models: ModelFolder, tmp_path: Path
) -> None:
    base = tmp_path / "own" / BASE_FILE
    assert (models.resolved("auto"), models.shortfall()) == ("assistant", "")
    assert models.find("Auto") == models.find("assistant") == base
    assert models.name_of(base) == "assistant"
    assert models.names() == ["embedded", "assistant"]

    shared = base.rename(tmp_path / "shared" / BASE_FILE)
    assert models.find("auto") == shared
    assert models.name_of(shared) == "assistant"


def test_without_the_base_the_toy_answers_and_one_line_says_how_to_get_it(
    models: ModelFolder, tmp_path: Path
) -> None:
    (tmp_path / "own" / BASE_FILE).unlink()
    assert models.resolved("auto") == "embedded"
    assert models.find("auto") == embedded_model_path()
    assert models.names() == ["embedded"]
    assert f"`{PULL}`" in models.shortfall()
    assert "\n" not in models.shortfall()
    with pytest.raises(ModelNotFoundError, match=BASE_FILE) as caught:
        models.find("assistant")
    assert PULL in caught.value.hint


def test_a_part_that_is_damaged_or_lacks_is_not_used_and_told(
    models: ModelFolder, tmp_path: Path
) -> None:
    base, package = tmp_path / "own" / BASE_FILE, tmp_path / "package"
    rows: dict[str, tuple[Path, bytes | None, str]] = {
        "another base": (base, b"GGUF another", f"{base} is damaged"),
        "a base that was cut": (base, BASE[:-1], f"{base} is damaged"),
        "another adapter": (package / "adapter.gguf", b"GGUF other", "adapter.gguf is damaged"),
        "no adapter": (package / "adapter.gguf", None, "lacks adapter.gguf"),
        "no template": (package / "template.jinja", None, "lacks template.jinja"),
        "no card": (package / "card.toml", None, "lacks card.toml"),
        "a card of nothing": (package / "card.toml", b"", "is damaged"),
        "no card at all": (package / "card.toml", b"\xff =", "cannot be read"),
    }
    wrong: dict[str, object] = {}
    for name, (path, data, told) in rows.items():
        before = path.read_bytes()
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        found = models.resolved("auto"), models.shortfall()
        try:
            models.assistant.check(base)
            wrong[name] = "it passes"
        except ModelLoadError as error:
            # Without its card nothing says that it is the default.
            said = TOY_FIRST if path.name == "card.toml" else told
            is_told = told in error.message and said in found[1]
            if found[0] != "embedded" or not is_told or "packaged toy answers" not in found[1]:
                wrong[name] = (found, error.message)
        path.write_bytes(before)
        assert models.resolved("auto") == "assistant"
    assert not wrong


def test_an_assistant_that_was_not_judged_good_enough_answers_only_who_asks_for_it(
    models: ModelFolder, tmp_path: Path
) -> None:
    card = tmp_path / "package" / "card.toml"
    whole = card.read_text()
    for told in ("is_default = false\n", "", 'is_default = "yes"\n'):
        card.write_text(whole.replace("is_default = true\n", told))
        assert (models.resolved("auto"), models.shortfall()) == ("embedded", TOY_FIRST), told
        assert models.resolved("assistant") == "assistant"
        assert models.find("assistant") == tmp_path / "own" / BASE_FILE
        models.assistant.check(tmp_path / "own" / BASE_FILE)


def test_a_file_that_is_mended_is_looked_at_anew(models: ModelFolder, tmp_path: Path) -> None:
    base = tmp_path / "own" / BASE_FILE
    base.write_bytes(b"GGUF broken off")
    assert models.resolved("auto") == "embedded"
    base.write_bytes(BASE)
    assert models.resolved("auto") == "assistant"


def test_all_that_fetch_the_base_mean_the_same_file() -> None:
    entry = entry_of("assistant")
    assert entry.sha256 == models_of_setup.SHA256
    assert entry.source == f"pypi:{models_of_setup.WHEEL}:{models_of_setup.FILE}"
    assert f"{entry.file}.gguf" == BASE_FILE
    if packaged_assistant().is_there:
        assert packaged_assistant().read_card()["base"]["sha256"] == models_of_setup.SHA256


def test_what_the_package_has_of_the_assistant_is_whole(tmp_path: Path) -> None:
    assistant = packaged_assistant()
    assert assistant.template.is_file()
    if assistant.is_there:
        base = tmp_path / BASE_FILE
        base.write_bytes(BASE)
        # Base before adapter: what is told first is that this is not the one it was made for.
        assert assistant.problem(base).startswith(f"{base} is damaged")
        sha256 = assistant.read_card()["adapter"]["sha256"]
        assert hashlib.sha256(assistant.adapter.read_bytes()).hexdigest() == sha256


def write_merged(path: Path, *made_of: bytes, pinned: bytes | None = None) -> None:
    """Write a file that says that it was made of these, and note what it is, or something else."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, data in zip(MERGED_FROM, made_of, strict=False):
        writer.add_string(key, hashlib.sha256(data).hexdigest())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    data = path.read_bytes() if pinned is None else pinned
    pin_of(path).write_bytes(encode_pin(ModelPin(sha256=hashlib.sha256(data).hexdigest())))


def test_one_file_of_base_and_adapter_is_taken_where_it_was_made_of_those_that_are_there(
    models: ModelFolder, tmp_path: Path
) -> None:
    assert models.merged() == (None, "")
    shared = tmp_path / "shared" / MERGED_FILE
    write_merged(shared, BASE, ADAPTER)
    assert models.merged() == (shared, "")
    own = tmp_path / "own" / MERGED_FILE
    write_merged(own, BASE, b"GGUF the adapter before")
    assert models.merged() == (shared, "")
    write_merged(own, BASE, ADAPTER)
    assert models.merged() == (own, "")
    assert models.names() == ["embedded", "assistant"], "it is no model by itself"
    assert models.find("assistant") == tmp_path / "own" / BASE_FILE


def test_a_merged_file_that_is_stale_or_damaged_is_left_alone_and_one_line_says_what_to_do(
    models: ModelFolder, tmp_path: Path
) -> None:
    path = tmp_path / "own" / MERGED_FILE
    write_merged(path, BASE, ADAPTER)
    right = path.read_bytes()
    told = {}
    for name, made_of, pinned in (
        ("another base", (b"GGUF other", ADAPTER), None),
        ("another adapter", (BASE, b"GGUF other"), None),
        ("it says nothing", (), None),
        ("only half of it", (BASE,), None),
        ("changed since", (BASE, ADAPTER), b"GGUF as it was"),
    ):
        write_merged(path, *made_of, pinned=pinned)
        told[name] = models.merged()
    write_merged(path, BASE, ADAPTER)
    path.write_bytes(right[:-7])
    told["cut off"] = models.merged()
    for name, data in (("no model", b"not a model"), ("cut off and noted so", right[:-7])):
        path.write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        pin_of(path).write_bytes(encode_pin(ModelPin(sha256=sha256)))
        told[name] = models.merged()
    pin_of(path).write_bytes(b"{}")
    told["a pin of nothing"] = models.merged()
    pin_of(path).unlink()
    told["no pin"] = models.merged()
    for name, (found, line) in told.items():
        assert found is None, name
        assert str(path) in line, name
        assert "`clawctl model merge`" in line, name
        assert "\n" not in line, name
    write_merged(path, BASE, ADAPTER)
    assert models.merged() == (path, "")
