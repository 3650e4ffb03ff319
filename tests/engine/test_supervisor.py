"""Loading, sharing, generating, cancelling and unloading, over workers that behave."""

import asyncio
import json
import os
import sys
from pathlib import Path

import msgspec
import pytest

from clawd.engine.protocol import (
    GenerationDone,
    GenerationFailed,
    GenerationStarted,
    ModelConfig,
    Tokens,
)
from clawd.engine.supervisor import Engine, LoadProgress, total_bytes
from clawd.errors import BusyError, CancelledByUserError, EngineError, ModelLoadError, StoppedError
from clawd.wire.events import PromptProgress
from tests.support.engines import (
    FAST,
    HASTY,
    LIMIT_S,
    events_of,
    eventually,
    fake_engine,
    is_running,
    model,
    prompt,
    text_of,
)
from tests.support.rows import each_row


async def test_a_generation_yields_its_events_in_order(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        events = await events_of(engine, "say hello")
        evaluated = events[1]
        assert isinstance(evaluated, GenerationStarted)
        number = evaluated.id
        assert events == [
            PromptProgress(processed=5, cached=2, total=10),
            GenerationStarted(id=number, tokens=10, cached=2, elapsed_ms=1.5, n_ctx=512),
            Tokens(id=number, text="hello", count=1),
            GenerationDone(
                id=number,
                reason="stop",
                prompt_tokens=10,
                cached_tokens=2,
                completion_tokens=1,
                elapsed_ms=10.0,
            ),
        ]


async def test_concurrent_first_uses_share_one_load_and_one_worker(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        texts = await asyncio.gather(*(text_of(engine, f"say {n}") for n in range(20)))
        assert texts == [str(n) for n in range(20)]
        assert len(journal.having("start")) == 1
        assert len(journal.having("load")) == 1


async def test_tokens_that_wait_come_as_one_and_none_is_lost(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        events = await events_of(engine, "tokens 5000")
        tokens = [event for event in events if isinstance(event, Tokens)]
        assert "".join(token.text for token in tokens) == "".join(f"t{n} " for n in range(5000))
        assert sum(token.count for token in tokens) == 5000


async def test_closing_the_iterator_cancels_in_the_worker_and_does_not_wait(
    tmp_path: Path,
) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        events = engine.generate(model(), prompt("endless"))
        async for event in events:
            if isinstance(event, Tokens):
                break
        await events.aclose()
        assert engine.status()[0].running == 0
        await eventually(lambda: len(journal.having("cancel")) == 1)
        assert await text_of(engine, "say after") == "after"


async def test_cancelling_the_task_cancels_in_the_worker(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        task = asyncio.create_task(events_of(engine, "endless"))
        await eventually(lambda: bool(journal.having("generate")))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: len(journal.having("cancel")) == 1)


async def test_the_least_recently_used_model_goes(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        for name in ("one", "two", "one", "three"):
            await text_of(engine, "say x", model(name))
        assert [status.alias for status in engine.status()] == ["one", "three"]


async def test_a_model_that_generates_is_never_sent_away(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST, max_loaded=1)
    async with fake_engine(tmp_path, settings) as (engine, _):
        busy = engine.generate(model("one"), prompt("endless"))
        await anext(busy)
        with pytest.raises(BusyError, match="one in use") as caught:
            await text_of(engine, "say x", model("two"))
        assert caught.value.retry_after_s > 0
        await busy.aclose()
        assert await text_of(engine, "say now", model("two")) == "now"
        assert [status.alias for status in engine.status()] == ["two"]


async def test_room_is_told_without_anybody_having_to_go_and_watchers_hear_of_generations(
    tmp_path: Path,
) -> None:
    settings = msgspec.structs.replace(FAST, max_loaded=2)
    async with fake_engine(tmp_path, settings) as (engine, _):
        begun: list[int] = []
        engine.add_watcher(lambda: begun.append(engine.generating))
        assert engine.has_room(model("one"))
        await engine.load(model("one"))
        assert (begun, engine.has_room(model("two"))) == ([], True)
        busy = engine.generate(model("two"), prompt("endless"))
        await anext(busy)
        assert (begun, engine.generating) == ([1], 1)
        assert [engine.has_room(model(name)) for name in ("one", "two", "three")] == [
            True, True, False,
        ]  # fmt: skip
        await busy.aclose()
        assert engine.generating == 0


async def test_an_idle_model_is_unloaded_and_its_process_is_gone(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST, keep_alive_s=0.05)
    async with fake_engine(tmp_path, settings) as (engine, journal):
        await text_of(engine, "say x")
        pid = journal.having("start")[0]["pid"]
        await eventually(lambda: not engine.status())
        await eventually(lambda: not is_running(pid))
        (line,) = journal.having("quit")
        assert line == {"pid": pid, "quit": True, "save_limit_s": settings.quit_grace_s / 2}
        assert await text_of(engine, "say again") == "again"


async def test_a_model_starts_again_when_its_worker_has_saved_and_left(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST, keep_alive_s=0.05)
    async with fake_engine(tmp_path, settings) as (engine, journal):
        config = model("lingers")
        await text_of(engine, "say x", config)
        await eventually(lambda: journal.having("quit") != [])
        assert await text_of(engine, "say again", config) == "again"
        kinds = [kind for line in journal.lines() for kind in ("start", "saved") if kind in line]
        assert kinds[:3] == ["start", "saved", "start"]


async def test_a_running_generation_outlives_keep_alive(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST, keep_alive_s=0.0)
    async with fake_engine(tmp_path, settings) as (engine, journal):
        events = engine.generate(model(), prompt("endless"))
        seen = 0
        async for event in events:
            seen += isinstance(event, Tokens)
            if seen == 20:
                break
        assert not journal.having("quit")
        await events.aclose()
        await eventually(lambda: bool(journal.having("quit")))


async def test_status_says_what_is_loaded(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        assert engine.status() == []
        info = await engine.load(model("good", "a"))
        assert info.architecture == "fake"
        (status,) = engine.status()
        assert (status.alias, status.state, status.running, status.deaths) == ("a", "ready", 0, 0)
        assert status.pid == journal.having("start")[0]["pid"]
        assert status.info == info == engine.info(model("good", "a"))
        assert engine.info(model("other")) is None


async def test_status_says_what_a_model_has_done_so_far(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        for _number in range(3):
            await events_of(engine, "say hello")
        (status,) = engine.status()
        assert (status.usage.prompt_tokens, status.usage.cached_tokens) == (30, 6)
        assert (status.usage.completion_tokens, status.usage.drafted_tokens) == (3, 0)


async def test_unload_ends_the_process_and_what_runs_on_it(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        events = engine.generate(model(), prompt("endless"))
        await anext(events)
        pid = engine.status()[0].pid
        assert await engine.unload("good")
        assert not is_running(pid)
        with pytest.raises(CancelledByUserError, match="unloaded"):
            async for _event in events:
                pass
        assert not await engine.unload("good")
        assert not await engine.unload("nobody")


async def test_cancel_all_stops_generations_and_waits_for_a_load(tmp_path: Path) -> None:
    async with fake_engine(tmp_path, HASTY) as (engine, journal):
        running = asyncio.create_task(events_of(engine, "endless"))
        loading = asyncio.create_task(events_of(engine, "say x", model("hangs")))
        await eventually(lambda: len(journal.having("load")) == 2)
        await eventually(lambda: bool(journal.having("generate")))
        async with asyncio.timeout(LIMIT_S):
            assert engine.cancel_all(lambda: StoppedError("the emergency stop is set")) == 2
            for task in (running, loading):
                with pytest.raises(StoppedError):
                    await task
        await eventually(lambda: bool(journal.having("cancel")))
        assert await text_of(engine, "say text still works") == "text still works"


async def test_tokens_are_counted_by_the_worker(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        assert await engine.count_tokens(model(), ["a b c", "", "d"]) == (3, 0, 1)


async def test_a_failed_generation_is_an_event(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        (event,) = await events_of(engine, "fail context_full")
        assert isinstance(event, GenerationFailed)
        assert event.code == "context_full"
        assert await text_of(engine, "say fine") == "fine"


async def test_the_worker_gets_no_secret_and_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("SOME_PASSWORD", "hunter2")
    monkeypatch.setenv("LC_TIME", "C")
    async with fake_engine(tmp_path) as (engine, _):
        environment = json.loads(await text_of(engine, "env"))
    assert "sk-secret" not in str(environment)
    assert "hunter2" not in str(environment)
    assert "HOME" not in environment
    assert environment["LC_TIME"] == "C"
    assert environment["GGML_NO_BACKTRACE"] == "1"


async def test_the_worker_has_its_own_session_no_open_files_and_no_core(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        with (tmp_path / "held").open("w") as held:
            os.set_inheritable(held.fileno(), True)
            await engine.load(model())
            pid = engine.status()[0].pid
            assert os.getsid(pid) == os.getpgid(pid) == pid
            links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
            assert not [link for link in links if link.endswith("held")]
            assert [link for link in links if link.startswith("socket:")] != []
            limits = Path(f"/proc/{pid}/limits").read_text("utf-8")
            assert limits.split("Max core file size", 1)[1].split()[:2] == ["0", "0"]
            assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")


async def test_the_launcher_decides_what_is_run(tmp_path: Path) -> None:
    seen: list[tuple[tuple[str, ...], Path]] = []

    def refusing(argv: tuple[str, ...], *, model_path: Path) -> tuple[str, ...]:
        seen.append((argv, model_path))
        raise EngineError("no fence, no worker")

    engine = Engine(FAST, launcher=refusing)
    with pytest.raises(EngineError, match="no fence, no worker"):
        await text_of(engine, "say x")
    await engine.close()
    ((argv, model_path),) = seen
    assert argv[-2] == "--fd"
    assert "clawd.engine.worker" in argv
    assert model_path == Path("/models/good.gguf")


async def test_a_program_that_is_not_there_is_an_engine_error(tmp_path: Path) -> None:
    engine = Engine(FAST, argv=(str(tmp_path / "nothing"),))
    with pytest.raises(EngineError, match="cannot be started"):
        await text_of(engine, "say x")
    await engine.close()


async def test_a_load_tells_how_far_it_is_and_is_shared(tmp_path: Path) -> None:
    parts = [tmp_path / f"big-{number:05}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        with part.open("wb") as file:
            file.truncate(100 << 20)
    whole = tmp_path / "fills.gguf"
    with whole.open("wb") as file:
        file.truncate(200 << 20)
    config = ModelConfig(path=str(whole), alias="fills")
    async with fake_engine(tmp_path) as (engine, journal):
        told: list[LoadProgress] = []
        others: list[LoadProgress] = []

        async def follow(steps: list[LoadProgress]) -> list[LoadProgress]:
            async with asyncio.timeout(LIMIT_S):
                async for step in engine.loading(config):
                    steps.append(step)
                    # It goes on when both have looked, and ends when one has seen it go on.
                    if told and others:
                        has_grown = told[-1].loaded_bytes > told[0].loaded_bytes
                        whole.with_suffix(".go").write_bytes(b"xx" if has_grown else b"x")
            return steps

        await asyncio.gather(follow(told), follow(others))
        assert {step.total_bytes for step in told} == {200 << 20}
        loaded = [step.loaded_bytes for step in told]
        assert 0 <= loaded[0] < loaded[-1] <= 200 << 20
        assert loaded == sorted(loaded)
        assert len(journal.having("load")) == 1
        assert await follow([]) == [], "it is there"
    small = tmp_path / "small" / "fills.gguf"
    small.parent.mkdir()
    small.write_bytes(b"x")
    small.with_suffix(".go").write_bytes(b"xx")
    async with fake_engine(tmp_path) as (engine, _):
        told = [step async for step in engine.loading(ModelConfig(path=str(small)))]
    assert told == [], "what is loaded at once is not worth a word"
    split = ModelConfig(path=str(parts[0]))
    assert total_bytes(split) == 200 << 20
    assert total_bytes(ModelConfig(path=str(tmp_path / "gone.gguf"))) == 0


async def test_a_load_that_is_followed_fails_once_and_leaves_nothing(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        with pytest.raises(ModelLoadError, match="bad magic"):
            _ = [step async for step in engine.loading(model("refuses"))]
        assert len(journal.having("load")) == 1
        assert engine.status() == []
        steps = engine.loading(model("lingers"))
        engine_closed = engine.close()
        with pytest.raises(CancelledByUserError):
            await asyncio.gather(anext(steps), engine_closed)


@each_row("way", ["close", "unload"])
async def test_what_ends_before_its_load_has_begun_begins_none(tmp_path: Path, way: str) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        steps = engine.loading(model())
        first = asyncio.ensure_future(anext(steps))
        await asyncio.sleep(0)  # it has asked for the model, and nothing was done for it yet
        async with asyncio.timeout(LIMIT_S):
            if way == "close":
                await engine.close()
            else:
                await engine.unload("good")
            with pytest.raises(CancelledByUserError):
                await first
            await engine.close()
        assert journal.lines() == []


async def test_close_leaves_no_process_and_refuses_new_work(tmp_path: Path) -> None:
    async with fake_engine(tmp_path, HASTY) as (engine, journal):
        running = asyncio.create_task(events_of(engine, "endless", model("one")))
        loading = asyncio.create_task(events_of(engine, "say x", model("hangs")))
        await eventually(lambda: len(journal.having("load")) == 2)
        async with asyncio.timeout(LIMIT_S):
            await engine.close()
        for task in (running, loading):
            with pytest.raises(CancelledByUserError):
                await task
        assert not [line for line in journal.having("start") if is_running(line["pid"])]
        with pytest.raises(CancelledByUserError, match="shutting down"):
            await engine.load(model())
        await engine.close()


@pytest.mark.parametrize(
    ("hidden", "told"),
    [
        ("llama_cpp", "is not installed"),
        ("numpy", "cannot be loaded: import of numpy halted; None in sys.modules"),
    ],
)
async def test_p3_without_llama_cpp_a_load_names_the_line_that_installs_it(
    hidden: str, told: str
) -> None:
    program = (
        f"import sys; sys.modules[{hidden!r}] = None\n"
        "from clawd.engine.worker.__main__ import main; sys.exit(main())"
    )
    engine = Engine(FAST, argv=(sys.executable, "-s", "-P", "-c", program))
    try:
        for _ in range(2):
            with pytest.raises(ModelLoadError) as caught:
                await engine.load(model())
            error = caught.value
            assert error.message == f"model good cannot be loaded: llama-cpp-python {told}"
            assert sys.executable in error.hint
            assert "install 'clawd[local]'" in error.hint
        assert not any(status.deaths for status in engine.status())
    finally:
        await engine.close()
