"""Workers that die, hang or talk nonsense: what fails, what goes on, what is refused."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Literal

import msgspec
import psutil
import pytest

from clawd.engine.client import EngineSettings
from clawd.engine.process import (
    KillCause,
    WorkerDeath,
    exit_reason,
    exit_signal,
    load_error,
    start_worker,
    unfenced,
)
from clawd.engine.protocol import GenerationDone, LoadFailed
from clawd.engine.slot import ModelSlot, Run
from clawd.errors import EngineError, ModelLoadError, WorkerDiedError
from tests.support.engines import (
    FAKE_WORKER,
    FAST,
    HASTY,
    LIMIT_S,
    WATCHFUL,
    Journal,
    eventually,
    fake_engine,
    give_time,
    is_running,
    model,
    prompt,
    text_of,
)
from tests.support.rows import each_row


async def test_a_death_fails_every_generation_of_that_model_with_the_last_lines(
    tmp_path: Path,
) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        bystander = engine.generate(model(), prompt("endless"))
        await anext(bystander)
        with pytest.raises(WorkerDiedError) as caught:
            await text_of(engine, "abort")
        assert "killed by SIGABRT" in caught.value.message
        assert caught.value.message.endswith("line 98\nline 99")
        assert "line 59\n" not in caught.value.message
        assert "line 60\n" in caught.value.message
        with pytest.raises(WorkerDiedError, match="SIGABRT"):
            async for _event in bystander:
                pass


async def test_other_models_go_on_and_the_dead_one_starts_again(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        other = engine.generate(model("other"), prompt("endless"))
        await anext(other)
        with pytest.raises(WorkerDiedError, match=r"exit status 7.*\n.*about to die"):
            await text_of(engine, "die")
        assert [s.state for s in engine.status()] == ["ready", "stopped"]
        await anext(other)
        assert await text_of(engine, "say back") == "back"
        await anext(other)
        await other.aclose()
        assert len(journal.having("start")) == 3
        assert [s.deaths for s in engine.status()] == [0, 0]
        assert await engine.unload("good")
        assert engine.deaths.values() == {("good",): 1}


async def test_a_prompt_that_killed_it_twice_is_refused_until_the_model_is_unloaded(
    tmp_path: Path,
) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        for _ in range(2):
            with pytest.raises(WorkerDiedError):
                await text_of(engine, "die now")
        with pytest.raises(EngineError, match="refused: the worker of model good died 2 times"):
            await text_of(engine, "die now")
        assert len(journal.having("start")) == 2
        assert await text_of(engine, "say another prompt") == "another prompt"
        await engine.unload("good")
        with pytest.raises(WorkerDiedError):
            await text_of(engine, "die now")


async def test_a_bystander_that_finishes_later_is_not_blamed(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        for kill in ("die 1", "die 2"):
            bystander = asyncio.create_task(text_of(engine, "tokens 3"))
            with pytest.raises(WorkerDiedError):
                await text_of(engine, kill)
            await asyncio.wait({bystander})
            bystander.exception()
            assert await text_of(engine, "tokens 3") == "t0 t1 t2 "


async def test_a_restart_waits(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST, backoff_initial_s=30.0, backoff_max_s=60.0)
    async with fake_engine(tmp_path, settings) as (engine, journal):
        with pytest.raises(WorkerDiedError):
            await text_of(engine, "die")
        task = asyncio.create_task(text_of(engine, "say x"))
        await eventually(lambda: engine.status()[0].state == "loading")
        done, _ = await asyncio.wait({task}, timeout=0.5)
        assert not done
        assert len(journal.having("start")) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def note_death(slot: ModelSlot, death: WorkerDeath, wait_s: float) -> None:
    """Put a death down, and make sure that the next start comes so long behind it."""
    before = time.monotonic()
    slot.note_death(death, EngineSettings())
    assert before + wait_s <= slot.start_after <= time.monotonic() + wait_s


async def test_each_death_in_a_row_doubles_the_wait_up_to_a_limit() -> None:
    slot = ModelSlot(model())
    death = WorkerDeath(model="m", pid=1, reason="", cause="exited", stderr=(), running=())
    for wait_s in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0):
        note_death(slot, death, wait_s)
    done = GenerationDone(
        id=1,
        reason="stop",
        prompt_tokens=1,
        cached_tokens=0,
        completion_tokens=1,
        elapsed_ms=1.0,
    )
    slot.note_success(Run(1, b""), done)
    note_death(slot, death, 0.5)


async def test_a_worker_killed_from_outside_while_idle_is_replaced(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        await engine.load(model())
        pid = engine.status()[0].pid
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: engine.status()[0].state == "stopped")
        assert await text_of(engine, "say new") == "new"
        assert engine.status()[0].pid != pid


async def test_a_death_while_loading_tells_the_last_lines_without_escapes(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        with pytest.raises(WorkerDiedError) as caught:
            await text_of(engine, "say x", model("aborts"))
        assert "SIGABRT" in caught.value.message
        assert "GGML_ASSERT(n > 0) failed" in caught.value.message
        assert "\x1b" not in caught.value.message
        with pytest.raises(WorkerDiedError, match="exit status 3"):
            await text_of(engine, "say x", model("dies"))


async def test_a_model_that_cannot_be_loaded_is_said_to_all_that_wait(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        failures = await asyncio.gather(
            *(text_of(engine, "say x", model("refuses")) for _ in range(3)), return_exceptions=True
        )
        for failure in failures:
            assert isinstance(failure, ModelLoadError)
            assert "refuses cannot be loaded: bad magic" in failure.message
        assert len(journal.having("start")) == 1
        pid = journal.having("start")[0]["pid"]
        await eventually(lambda: not is_running(pid))
        assert engine.status() == []


def workers(journal: Journal) -> list[int]:
    """Return the processes of workers that keep this journal."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if str(journal.path) in child.cmdline():
                found.append(child.pid)
    return found


async def test_a_load_that_hangs_is_ended(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST, load_timeout_s=0.5)
    async with fake_engine(tmp_path, settings) as (engine, journal):
        with pytest.raises(ModelLoadError, match=r"not loaded within 0\.5 s"):
            await text_of(engine, "say x", model("hangs"))
        # It may have had no time for a line in the journal.
        await eventually(lambda: workers(journal) == [])


async def test_what_a_worker_says_after_it_closed_its_socket_is_told(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with fake_engine(tmp_path) as (engine, journal):
        dying = asyncio.create_task(text_of(engine, f"leaves {go}"))
        await eventually(lambda: bool(journal.having("left")))
        # As one that gets no processor for its traceback.
        assert not (await asyncio.wait({dying}, timeout=2.5))[0]
        go.touch()
        with pytest.raises(WorkerDiedError, match=r"exit status 3\.(.|\n)*why it left"):
            await dying


async def test_a_worker_that_closes_its_socket_and_stays_is_ended(tmp_path: Path) -> None:
    async with fake_engine(tmp_path, HASTY) as (engine, _):
        with pytest.raises(WorkerDiedError, match="closed its socket and did not end"):
            await text_of(engine, f"leaves {tmp_path / 'never'}")


async def test_a_start_that_is_broken_off_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken_off(*_: object, **_options: object) -> None:
        raise asyncio.CancelledError

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "create_unix_connection", broken_off)
    before = set(psutil.Process().children())
    argv = (sys.executable, "-s", "-P", str(FAKE_WORKER))
    with pytest.raises(asyncio.CancelledError):
        await start_worker(argv, launcher=unfenced, model_path=tmp_path)
    assert set(psutil.Process().children()) <= before


async def test_garbage_instead_of_a_frame_ends_the_worker(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        with pytest.raises(WorkerDiedError, match="sent what is no frame"):
            await text_of(engine, "garbage")
        with pytest.raises(WorkerDiedError, match="sent what is no frame"):
            await text_of(engine, "say x", model("garbage"))
        assert await text_of(engine, "say fine") == "fine"


async def test_a_runaway_template_is_killed_and_marked_bad(tmp_path: Path) -> None:
    # A busy machine may give it less than a core, so the time of a step must not end it first.
    settings = msgspec.structs.replace(WATCHFUL, step_timeout_s=LIMIT_S)
    async with fake_engine(tmp_path, settings) as (engine, journal):
        await engine.load(model())
        with pytest.raises(WorkerDiedError, match="template was not rendered within"):
            await text_of(engine, "template")
        with pytest.raises(EngineError, match="chat template of model good is marked bad"):
            await text_of(engine, "say x")
        assert len(journal.having("start")) == 1
        await engine.unload("good")
        assert await text_of(engine, "say x") == "x"


async def test_a_worker_that_hangs_in_a_step_is_killed(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(WATCHFUL)
    async with fake_engine(tmp_path, settings) as (engine, _):
        with pytest.raises(WorkerDiedError, match="no sign of life"):
            await text_of(engine, "silent")
        give_time(settings)
        assert await text_of(engine, "say fine") == "fine"


async def test_a_stopped_process_is_noticed(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(WATCHFUL)
    async with fake_engine(tmp_path, settings) as (engine, _):
        await engine.load(model())
        os.kill(engine.status()[0].pid, signal.SIGSTOP)
        with pytest.raises(WorkerDiedError, match="no sign of life for 1 s"):
            await text_of(engine, "say x")
        give_time(settings)
        # It did not compute, so its template is not blamed.
        assert await text_of(engine, "say x") == "x"


async def test_a_flood_on_stderr_blocks_nobody(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        assert await text_of(engine, "noisy done") == "done"


async def test_deaths_in_a_row_leave_nothing_behind(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(8):
            with pytest.raises(WorkerDiedError):
                await text_of(engine, f"die {number}")
        await eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)
        assert not [line for line in journal.having("start") if is_running(line["pid"])]


@each_row(
    ("returncode", "reason"),
    [
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-9, "killed by SIGKILL"),
        (134, "exit status 134 (SIGABRT)"),
        (-250, "killed by signal 250"),
    ],
)
def test_an_exit_status_is_said_in_words(returncode: int, reason: str) -> None:
    assert exit_reason(returncode) == reason


@each_row(
    ("cause", "number", "stderr", "hint"),
    [
        ("exited", 0, (), "started again on next use."),
        ("exited", signal.SIGKILL, (), "If nobody killed it, memory ran out: lower ctx_size"),
        ("exited", signal.SIGBUS, (), "replace such a file as a whole"),
        ("exited", signal.SIGILL, (), "processor lacks an instruction"),
        ("exited", 0, ("out of memory: 5 GB",), "Memory ran out: lower ctx_size"),
        ("exited", signal.SIGABRT, ("  what():  std::bad_alloc",), "Memory ran out"),
        ("template", 0, (), "`clawctl model unload m`"),
        ("step", 0, (), "larger watchdog_s"),
        ("other", 0, (), "started again on next use."),
    ],
)
def test_a_death_comes_with_what_to_do(
    cause: KillCause | Literal["exited"], number: int, stderr: tuple[str, ...], hint: str
) -> None:
    death = WorkerDeath(
        model="m", pid=1, reason="", cause=cause, stderr=stderr, running=(), signal=number
    )
    assert hint in death.error().hint


@each_row(("returncode", "number"), [(0, 0), (3, 0), (-9, signal.SIGKILL), (134, signal.SIGABRT)])
def test_the_signal_behind_an_exit_status_is_known(returncode: int, number: int) -> None:
    assert exit_signal(returncode) == number


@each_row(
    ("code", "outside", "hint"),
    [
        ("out_of_memory", "model_load", "Lower ctx_size"),
        ("model_not_found", "model_not_found", "clawctl model list"),
        ("model_load", "model_load", "Is the file whole"),
        ("", "model_load", "Is the file whole"),
    ],
)
def test_a_failed_load_comes_with_what_to_do(code: str, outside: str, hint: str) -> None:
    error = load_error("m", LoadFailed(code=code, message="no"))
    assert (error.code, error.message) == (outside, "model m cannot be loaded: no")
    assert hint in error.hint
