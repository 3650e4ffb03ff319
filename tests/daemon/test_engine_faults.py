"""Faults of a model, its file or its worker: a readable end, and everything else goes on."""

import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawd.engine.embedded import embedded_model_path
from clawd.wire.events import Notice, TurnFailed
from tests.support.engine_home import LIMIT_S, EngineHome, Running, send
from tests.support.engines import is_running
from tests.support.gguf_models import write_random_gguf
from tests.support.home import Home

pytestmark = [pytest.mark.daemon, pytest.mark.real_model]

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)
WORDS = "the river runs under the green bridge at seven "
GIGABYTE = 1 << 30
WATCHDOG_S = 20  # in which a template that computes gets seconds of a busy processor, too


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model whose answer never ends by itself."""
    path = tmp_path_factory.mktemp("models") / "endless.gguf"
    return write_random_gguf(path, chat_template=TEMPLATE, is_printable=True)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same shape; it answers something else."""
    path = tmp_path_factory.mktemp("models") / "other.gguf"
    return write_random_gguf(path, chat_template=TEMPLATE, is_printable=True, seed=2)


@pytest.fixture
def engine(home: Home) -> Iterator[EngineHome]:
    """A home for one test, to be configured by it."""
    yield from ended_clean(home)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, endless: Path) -> Iterator[EngineHome]:
    """One daemon for the faults that end with a turn."""
    home = Home(tmp_path_factory.mktemp("a user"))
    try:
        for engine in ended_clean(home):
            # Longer than a busy machine lets a worker wait, shorter than this test waits for it.
            engine.configure(
                '[model."small"]\nctx_size = 2048', watchdog_s=WATCHDOG_S, max_tokens=1000
            )
            for name in ("SIGKILL", "SIGABRT", "SIGSTOP", "small"):
                shutil.copy(endless, engine.models / f"{name}.gguf")
            home.start()
            yield engine
    finally:
        home.close()


def ended_clean(home: Home) -> Iterator[EngineHome]:
    made = EngineHome(home)
    yield made
    home.close()
    assert [pid for pid in made.seen if is_running(pid)] == []


def wait_for(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not claim():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "reason", "hint"),
    [
        (signal.SIGKILL, "killed by SIGKILL", "memory ran out: lower ctx_size"),
        (signal.SIGABRT, "killed by SIGABRT", "started again on next use"),
        (signal.SIGSTOP, f"no sign of life for {WATCHDOG_S} s", "larger watchdog_s"),
    ],
)
def test_a_worker_that_breaks_in_an_answer_is_replaced_and_others_answer(
    number: signal.Signals, reason: str, hint: str, running: EngineHome
) -> None:
    engine, name = running, number.name
    engine.assert_embedded_answers()
    daemon = engine.home.pid()
    with engine.client() as client:
        turn = Running(client, send("go", name))
        turn.wait_for_pieces(1)
        broken = engine.loaded()[name].pid
        os.kill(broken, number)
        broken_at = time.monotonic()
        engine.assert_embedded_answers()
        end = turn.end()
        took_s = time.monotonic() - broken_at
    assert (end.failed.code, reason in end.failed.message) == ("worker_died", True)
    assert f"model {name}" in end.failed.message
    assert hint in end.failed.hint
    assert took_s < LIMIT_S
    assert engine.ask("again", name).text
    assert engine.loaded()[name].pid != broken
    assert not is_running(broken)
    assert engine.home.pid() == daemon
    wait_for(lambda: engine.left_behind() == [])


def test_files_that_cannot_be_loaded_fail_readably_and_once(
    engine: EngineHome, endless: Path
) -> None:
    engine.configure('[model."huge"]\nctx_size = 16777216')
    whole = endless.read_bytes()
    write = {
        "short": whole[: len(whole) // 2],
        "header": whole[:2000],
        "garbage": b"GGUF\x03\0\0\0" + b"\xff" * 4096,
        "page": b"<!DOCTYPE html><html>Log in to download</html>",
        "aborts": with_a_token_twice(embedded_model_path().read_bytes()),
        "huge": whole,
    }
    for name, data in write.items():
        (engine.models / f"{name}.gguf").write_bytes(data)
    engine.home.start()
    engine.assert_embedded_answers()
    pid = engine.home.pid()
    assert pid is not None
    # Real allocations fail, on a machine of any size; its children inherit it.
    resource.prlimit(pid, resource.RLIMIT_AS, (4 * GIGABYTE, 4 * GIGABYTE))
    expected = {
        "short": ("model_load", "not within the file bounds", "Is the file whole"),
        "header": ("model_load", "failed to load model", "Is the file whole"),
        "garbage": ("model_load", "model garbage cannot be loaded", "Is the file whole"),
        "page": ("model_load", "no GGUF file: it begins with b'<!DO'", "Is the file whole"),
        "aborts": ("worker_died", "GGML_ASSERT", "started again on next use"),
        "huge": ("model_load", "context of 16777216 tokens", "Lower ctx_size"),
    }
    for name, (code, message, hint) in expected.items():
        failed = engine.ask("hello", name).failed
        assert (failed.code, name in failed.message) == (code, True)
        assert message in failed.message
        assert hint in failed.hint
        assert "Traceback" not in failed.message
        engine.assert_embedded_answers()
    wait_for(lambda: engine.left_behind() == [])
    # Nobody asks for them, so nobody starts them again.
    assert set(engine.loaded()) == {"embedded"}
    assert engine.home.pid() == pid


def with_a_token_twice(model: bytes) -> bytes:
    """Make the vocabulary one that llama.cpp asserts about: the token `B` becomes a second `A`."""
    length = (1).to_bytes(8, "little")
    assert model.count(length + b"A" + length + b"B") == 1
    return model.replace(length + b"A" + length + b"B", (length + b"A") * 2)


def test_hostile_templates_end_or_are_replaced_and_others_answer(running: EngineHome) -> None:
    engine = running
    loop = "{% for a in range(90000) %}"
    end = "{% endfor %}"
    templates = {
        "runaway": loop * 3 + "{% if messages is none %}x{% endif %}" + end * 3,
        "escapes": "{{ cycler.__init__.__globals__.os.system('touch "
        + str(engine.temporary / "escaped")
        + "') }}",
    }
    for name, template in templates.items():
        write_random_gguf(engine.models / f"{name}.gguf", chat_template=template)
    engine.assert_embedded_answers()
    with engine.client() as client:
        turn = Running(client, send("hello", "runaway"))
        engine.assert_embedded_answers()
        # It throws instead of going on; ChatML takes its place.
        assert engine.ask("hello", "escapes").text
        failed = turn.end().failed
    assert (failed.code, "template was not rendered within 5 s" in failed.message) == (
        "worker_died",
        True,
    )
    assert "clawctl model unload runaway" in failed.hint
    refused = engine.ask("hello", "runaway").failed
    assert "chat template of model runaway is marked bad" in refused.message
    engine.assert_embedded_answers()
    wait_for(lambda: engine.left_behind() == [])


def test_damaged_state_files_and_those_of_other_models_are_not_used(
    engine: EngineHome, endless: Path, other: Path
) -> None:
    engine.configure(disk_mb=64)
    shutil.copy(endless, engine.models / "endless.gguf")
    shutil.copy(other, engine.models / "other.gguf")
    engine.home.start()
    asked = [engine.ask(f"{number}: {WORDS * 30}", "endless") for number in range(4)]
    assert all(turn.text for turn in asked)
    engine.home.close()
    files = engine.conversation_states()
    assert len(files) == 4
    shortened, flipped, foreign, _whole = files
    shortened.write_bytes(shortened.read_bytes()[:-100])
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 4
    flipped.write_bytes(data)
    engine.home.start()
    engine.ask(f"0: {WORDS * 30}", "other")
    engine.home.close()
    (theirs,) = set(engine.conversation_states()) - set(files)
    theirs.replace(foreign)
    damaged = {path.read_bytes() for path in (shortened, flipped, foreign)}

    engine.home.start()
    again = [engine.ask("go on", "endless", conversation=turn.conversation) for turn in asked]
    assert all(turn.text for turn in again)
    # The beginning is the same in all, so a part of each is known in any case.
    went_on = [
        after.evaluated.cached > before.evaluated.tokens
        for before, after in zip(asked, again, strict=True)
    ]
    assert sorted(went_on) == [False, False, False, True]
    engine.assert_embedded_answers()
    wait_for(lambda: engine.left_behind() == [])
    engine.home.close()
    assert list(engine.home.path.rglob("*.part")) == []
    assert damaged.isdisjoint(path.read_bytes() for path in engine.states())


def test_a_model_file_that_is_replaced_is_loaded_anew_and_its_old_states_are_not_used(
    engine: EngineHome, endless: Path, other: Path
) -> None:
    engine.configure(disk_mb=64)
    path = engine.models / "mine.gguf"
    shutil.copy(endless, path)
    engine.home.start()
    first = engine.ask(WORDS * 10, "mine")
    before = engine.loaded()["mine"].pid
    # While it is loaded.
    added = engine.home.ctl("model", "add", str(other), "--name", "mine", "--force", "--copy")
    assert added.returncode == 0, added.stderr
    second = engine.ask(WORDS * 10, "mine")
    assert (second.evaluated.cached, second.text != first.text) == (0, True)
    assert engine.loaded()["mine"].pid != before
    # While it is not; what its bytes were, they are again, but the states are of its other time.
    assert engine.home.ctl("model", "unload", "mine").returncode == 0
    assert engine.states()
    added = engine.home.ctl("model", "add", str(endless), "--name", "mine", "--force", "--copy")
    assert added.returncode == 0, added.stderr
    third = engine.ask(WORDS * 10, "mine")
    assert (third.evaluated.cached, third.text) == (0, first.text)
    engine.assert_embedded_answers()
    wait_for(lambda: engine.left_behind() == [])


def test_a_file_cut_short_under_a_running_answer_takes_nothing_else_down(
    running: EngineHome, endless: Path
) -> None:
    engine = running
    path = engine.models / "mine.gguf"
    shutil.copy(endless, path)
    engine.assert_embedded_answers()
    with engine.client() as client:
        turn = Running(client, send("go", "mine"))
        turn.wait_for_pieces(1)
        os.truncate(path, 4096)
        engine.assert_embedded_answers()
        end = turn.end()
    # Mapped pages are gone; whether the worker needs one again is up to llama.cpp.
    if isinstance(end.events[-1], TurnFailed):
        assert "SIGBUS" in end.failed.message
        assert "overwritten while it was in use" in end.failed.hint
    failed = engine.ask("again", "mine").failed
    assert (failed.code, "Is the file whole" in failed.hint) == ("model_load", True)
    shutil.copy(endless, path)
    assert engine.ask("again", "mine").text
    wait_for(lambda: engine.left_behind() == [])


def test_a_message_that_fits_no_context_is_cut_with_a_notice(running: EngineHome) -> None:
    engine = running
    ended = engine.ask(WORDS * 400, "small")
    assert ended.text
    (told,) = (
        event.text
        for event in ended.events
        if isinstance(event, Notice) and "left out" in event.text
    )
    assert "message-1.txt" in told
    engine.assert_embedded_answers()
    worker = engine.loaded()["small"].pid
    assert engine.ask("short", "small").text
    assert engine.loaded()["small"].pid == worker
    wait_for(lambda: engine.left_behind() == [])
