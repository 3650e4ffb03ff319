"""The local provider over workers that speak the protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.engine.models import CallThresholds
from clawd.engine.protocol import (
    GenerationDone,
    GenerationStarted,
    ModelConfig,
    Sampling,
    Tokens,
)
from clawd.errors import (
    BusyError,
    ClawError,
    ContextFullError,
    EngineError,
    InvalidRequestError,
    ModelNotFoundError,
    ProviderError,
    StoppedError,
    WorkerDiedError,
)
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
    ToolCall,
    ToolSpec,
)
from clawd.providers.local import LocalModel, LocalProvider
from clawd.providers.local_answer import MAX_LOOSE, LocalAnswer, LooseSchemas, StrayMarks
from clawd.providers.local_request import LocalOptions, fitted, generate_for, resolve_sampling
from clawd.providers.toolcalls.base import ParserOptions
from clawd.providers.toolcalls.detect import end_of_thought, habits_of, parser_of
from clawd.runtime.compressor import ModelBook
from clawd.wire.events import (
    HopUsage,
    Notice,
    PromptEvaluated,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
)
from tests.support.collecting import collect
from tests.support.engines import GREEDY, LIMIT_S, Journal, eventually, fake_engine
from tests.support.rows import each_row

TIME = ToolSpec(name="time", description="Tell the time", parameters={"type": "object"})
NOTE = ToolSpec(name="note", description="Take a note", parameters={"type": "object"})
CALL = '<tool_call>\n{"name": "time", "arguments": {"zone": "UTC"}}\n</tool_call>'


def find(name: str) -> LocalModel:
    if name == "nothing":
        raise ModelNotFoundError("no model named 'nothing'; there are: fake")
    return LocalModel(config=ModelConfig(path=f"/models/{name}.gguf", alias=name), sampling=GREEDY)


@asynccontextmanager
async def local(folder: Path) -> AsyncIterator[tuple[LocalProvider, Journal]]:
    async with fake_engine(folder) as (engine, journal):
        yield LocalProvider("local", engine, find, default_model="fake"), journal


def ask(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest(messages=(Message(role="user", content=text),), **fields)


async def deltas_of(provider: LocalProvider, request: ChatRequest) -> list[Delta]:
    async with asyncio.timeout(LIMIT_S):
        return [delta async for delta in provider.chat(request)]


async def failure_of(provider: LocalProvider, request: ChatRequest) -> ClawError:
    last = (await deltas_of(provider, request))[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, ClawError)
    return last.error


async def test_an_answer_is_progress_evaluation_text_and_an_end(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        assert await deltas_of(provider, ask("say hello")) == [
            PromptProgress(processed=5, cached=2, total=10),
            PromptEvaluated(
                tokens=10, cached=2, elapsed_ms=1.5, context_used=10, context_size=512, new=8
            ),
            TextDelta(text="hello"),
            Finished(
                reason="stop",
                usage=HopUsage(
                    prompt_tokens=10, cached_tokens=2, completion_tokens=1, tokens_per_s=100.0
                ),
                provider="local",
                model="fake",
            ),
        ]


async def test_what_begins_with_a_call_depends_on_what_is_answered(tmp_path: Path) -> None:
    calls = CallThresholds(first=0.25, further=0.75, change=2.0)
    result = Message(role="tool", content="say noon", tool_call_id="c1", name="time")
    call = ToolCall(id="c1", name="time", arguments="{}")
    asked = Message(role="assistant", content="", tool_calls=(call,))
    async with fake_engine(tmp_path) as (engine, journal):

        def provider_of(model: LocalModel) -> LocalProvider:
            return LocalProvider("local", engine, lambda _: model, default_model="fake")

        for model in (msgspec.structs.replace(find("fake"), calls=calls), find("fake")):
            provider = provider_of(model)
            first = ask("say hello", tools=(TIME,))
            *_, finished = await deltas_of(provider, first)
            assert isinstance(finished, Finished)
            assert finished.is_unsure is (model.calls.change > 1.0)
            behind = (*first.messages, asked, result)
            await deltas_of(provider, msgspec.structs.replace(first, messages=behind))
        seen = [line.get("call_from") for line in journal.having("generate")]
    assert seen == [0.25, 0.75, None, None]


async def test_calls_come_with_ids_and_end_with_tool_calls(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        request = ask(f"chars Look: {CALL}{CALL}", tools=(TIME,))
        response = await collect(provider.chat(request))
    assert response.final_text == "Look:"
    assert response.stop_reason == "tool_calls"
    assert [(c.name, c.arguments) for c in response.tool_calls] == [
        ("time", '{"zone": "UTC"}'),
        ("time", '{"zone": "UTC"}'),
    ]
    first, second = (call.id for call in response.tool_calls)
    assert first != second
    assert first.startswith("call_")


async def test_of_several_calls_one_comes_where_more_are_unwelcome(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        request = ask(f"chars {CALL}{CALL}", tools=(TIME,), parallel_calls=False)
        response = await collect(provider.chat(request))
    assert [(call.name, call.arguments) for call in response.tool_calls] == [
        ("time", '{"zone": "UTC"}')
    ]


async def test_without_tools_a_call_is_text(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        uncalled = ask(f"say {CALL}", tools=(TIME,), tool_choice="none")
        kept = msgspec.structs.replace(uncalled, keeps_tools=True)
        for request in (ask(f"say {CALL}"), uncalled, kept):
            response = await collect(provider.chat(request))
            assert response.final_text == CALL
            assert response.tool_calls == ()
            assert response.stop_reason == "stop"


async def test_reasoning_is_split_off_without_tools_too(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        response = await collect(provider.chat(ask("chars <think>hm</think>\n\nyes")))
    assert (response.reasoning, response.final_text) == ("hm", "yes")


async def test_r5_the_worker_sees_system_history_tools_sampling_and_variables(
    tmp_path: Path,
) -> None:
    call = ToolCall(id="c1", name="time", arguments='{"a": 1}')
    request = ChatRequest(
        system="Be brief.",
        messages=(
            Message(role="user", content="what time"),
            Message(role="assistant", content=None, tool_calls=(call,)),
            Message(role="tool", content="noon", tool_call_id="c1", name="time"),
            Message(role="user", content="request"),
        ),
        tools=(TIME, NOTE),
        tool_choice="note",
        temperature=0.5,
        sampling=Sampling(
            max_tokens=7,
            stop=("END",),
            temperature=0.1,
            template_kwargs={"enable_thinking": False},
        ),
    )
    of_the_model = {"enable_thinking": True, "depth": 2}

    def configured(name: str) -> LocalModel:
        return msgspec.structs.replace(find(name), template_kwargs=of_the_model)

    async with fake_engine(tmp_path) as (engine, _):
        provider = LocalProvider("local", engine, configured, default_model="fake")
        deltas = await deltas_of(provider, request)
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    seen = json.loads(text)
    assert seen.pop("grammar")["tools"] == {"note": {"type": "object"}}
    assert seen == {
        "messages": [
            ["system", "Be brief."],
            ["user", "what time"],
            ["assistant", ""],
            ["tool", "noon"],
            ["user", "request"],
        ],
        "variables": {"depth": 2, "enable_thinking": False},
        "calls": [["time", '{"a": 1}']],
        # All of them, so that the prompt begins as it does without a choice.
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in (TIME, NOTE)
        ],
        "max_tokens": 7,
        "temperature": 0.5,
        "stop": ["END"],
    }


@each_row("choice", ["required", "time"])
async def test_a_choice_that_the_model_ignores_is_a_failure(tmp_path: Path, choice: str) -> None:
    async with local(tmp_path) as (provider, _):
        request = ask("say no", tools=(TIME,), tool_choice=choice)
        error = await failure_of(provider, request)
        assert isinstance(error, ProviderError)
        assert choice in error.message
        request = ask(f"say {CALL}", tools=(TIME,), tool_choice=choice)
        assert len((await collect(provider.chat(request))).tool_calls) == 1


@each_row(
    ("code", "kind"),
    [
        ("busy", BusyError),
        ("context_full", ContextFullError),
        ("invalid_request", InvalidRequestError),
        ("odd", EngineError),
    ],
)
async def test_a_failed_generation_keeps_its_code(
    tmp_path: Path, code: str, kind: type[ClawError]
) -> None:
    async with local(tmp_path) as (provider, _):
        error = await failure_of(provider, ask(f"fail {code}"))
    assert type(error) is kind
    assert error.code == code
    if isinstance(error, BusyError):
        assert error.retry_after_s == 2.5


async def test_a_death_is_the_last_delta_and_not_an_exception(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        (delta,) = await deltas_of(provider, ask("die"))
        assert isinstance(delta, Failed)
        assert isinstance(delta.error, WorkerDiedError)
        assert not delta.partial


async def test_a_model_that_is_not_there_is_never_replaced_by_another(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, journal):
        error = await failure_of(provider, ask("say x", model="nothing"))
        assert isinstance(error, ModelNotFoundError)
        assert journal.lines() == []


async def test_a_stop_in_mid_answer_keeps_what_was_said(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        provider = LocalProvider("local", engine, find, default_model="fake")
        deltas: list[Delta] = []
        async with aclosing(provider.chat(ask("endless"))) as stream:
            async for delta in stream:
                deltas.append(delta)
                if isinstance(delta, TextDelta):
                    engine.cancel_all(lambda: StoppedError("the emergency stop is set"))
        last = deltas[-1]
        assert isinstance(last, Failed)
        assert isinstance(last.error, StoppedError)
        assert last.partial


async def test_closing_the_stream_stops_the_worker(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, journal):
        async with aclosing(provider.chat(ask("endless"))) as stream:
            await anext(stream)
        await eventually(lambda: len(journal.having("cancel")) == 1)


async def grammar_of(provider: LocalProvider, **fields: Any) -> dict[str, Any]:
    deltas = await deltas_of(provider, ask("request", **fields))
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    asked: dict[str, Any] = json.loads(text)["grammar"]
    return asked


async def test_calls_are_held_to_their_schemas_behind_the_marker(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        lazy = await grammar_of(provider, tools=(TIME, NOTE))
        assert (lazy["kind"], lazy["lazy"], list(lazy["tools"])) == (
            "tool_call",
            True,
            ["time", "note"],
        )
        assert (await grammar_of(provider))["kind"] == "none"
        silenced = await grammar_of(provider, tools=(TIME,), tool_choice="none")
        assert silenced["kind"] == "none"


async def test_calls_are_held_in_the_way_that_the_models_template_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_FAKE_TEMPLATE", "{# [TOOL_CALLS] [ARGS] #}")
    async with local(tmp_path) as (provider, _):
        asked = await grammar_of(provider, tools=(TIME,))
        assert asked["frames"][0]["call"] == "[TOOL_CALLS]%name%[ARGS]%arguments%"
        assert asked["thoughts"][0] == ["[THINK]", "[/THINK]"]


async def test_a_response_format_is_what_the_answer_is_held_to(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    async with local(tmp_path) as (provider, _):
        asked = await grammar_of(provider, response_format=wanted)
        assert (asked["kind"], asked["schema"], asked["tools"]) == ("json_schema", schema, {})
        asked = await grammar_of(provider, response_format={"type": "json_object"}, tools=(TIME,))
        assert (asked["schema"], list(asked["tools"])) == ({"type": "object"}, ["time"])
        response = await collect(provider.chat(ask("say x", response_format={"type": "text"})))
        assert response.final_text == "x"


@each_row(
    "wanted",
    [{"type": "yaml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"a": 1}}],
)
async def test_a_response_format_that_is_none_is_refused(
    tmp_path: Path, wanted: dict[str, Any]
) -> None:
    async with local(tmp_path) as (provider, _):
        error = await failure_of(provider, ask("say x", response_format=wanted))
        assert isinstance(error, InvalidRequestError)
        assert str(wanted["type"]) in error.message


async def test_a_required_tool_that_is_not_offered_is_refused(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, journal):
        error = await failure_of(provider, ask("say x", tools=(TIME,), tool_choice="nothing"))
        assert isinstance(error, InvalidRequestError)
        assert "time" in error.message
        assert journal.having("generate") == []


async def test_check_generates_one_token_and_says_what_answered(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, journal):
        assert "fake (fake, 0.0 M parameters, context 512) answered in" in await provider.check()
        assert len(journal.having("generate")) == 1
        assert provider.capabilities().context_size == 512
        assert provider.capabilities().local


def test_penalties_stay_the_operators_unless_allowed() -> None:
    defaults = Sampling(temperature=0.2, repeat_penalty=1.1)
    wishes = Sampling(temperature=0.9, repeat_penalty=1.9, frequency_penalty=1.0, seed=0)
    request = ChatRequest(messages=(), sampling=wishes)
    assert resolve_sampling(defaults, request) == Sampling(
        temperature=0.9, repeat_penalty=1.1, seed=0
    )
    assert resolve_sampling(defaults, request, allow_penalties=True) == Sampling(
        temperature=0.9, repeat_penalty=1.9, frequency_penalty=1.0, seed=0
    )


def test_shapers_are_the_requests_and_dry_is_a_penalty() -> None:
    wishes = Sampling(
        xtc_probability=0.5, dry_multiplier=0.8, logit_bias={7: -2.0}, logprobs=True, top_logprobs=3
    )
    request = ChatRequest(messages=(), sampling=wishes)
    shaped = Sampling(xtc_probability=0.5, logit_bias={7: -2.0}, logprobs=True, top_logprobs=3)
    assert resolve_sampling(Sampling(), request) == shaped
    allowed = resolve_sampling(Sampling(), request, allow_penalties=True)
    assert allowed == msgspec.structs.replace(shaped, dry_multiplier=0.8)


def test_a_preset_gives_way_to_what_is_given_beside_it() -> None:
    request = ChatRequest(messages=(), sampling=Sampling(preset="wild", top_p=0.5))
    got = resolve_sampling(Sampling(repeat_penalty=1.2), request)
    assert (got.temperature, got.top_p, got.xtc_probability) == (1.5, 0.5, 0.5)
    assert got.repeat_penalty == 1.2
    request = ChatRequest(messages=(), temperature=0.1, sampling=Sampling(preset="wild"))
    assert resolve_sampling(Sampling(), request).temperature == 0.1


def test_greedy_is_kept_when_a_request_is_silent() -> None:
    assert resolve_sampling(GREEDY, ChatRequest(messages=())).temperature == 0.0
    request = ChatRequest(messages=(), temperature=0.0)
    assert resolve_sampling(Sampling(), request).temperature == 0.0


async def test_call_deltas_carry_name_and_id_once(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        deltas = await deltas_of(provider, ask(f"chars {CALL}", tools=(TIME,)))
    calls = [delta for delta in deltas if isinstance(delta, CallDelta)]
    assert [(call.index, call.name) for call in calls] == [(0, "time")]


async def test_without_the_tool_role_results_are_user_text_and_calls_stay_calls(
    tmp_path: Path,
) -> None:
    call = ToolCall(id="c1", name="time", arguments="{}")
    request = ChatRequest(
        messages=(
            Message(role="user", content="what time"),
            Message(role="assistant", content=None, tool_calls=(call,)),
            Message(role="tool", content="noon", tool_call_id="c1", name="time"),
            Message(role="assistant", content="Noon."),
            Message(role="user", content="request"),
        ),
        tools=(TIME,),
    )
    async with fake_engine(tmp_path) as (engine, _):
        options = LocalOptions(use_tool_role=False)
        provider = LocalProvider("local", engine, find, default_model="fake", options=options)
        response = await collect(provider.chat(request))
    seen = json.loads(response.final_text)
    assert seen["messages"] == [
        ["user", "what time"],
        ["assistant", ""],
        ["user", "[tool: time]\nnoon"],
        ["assistant", "Noon."],
        ["user", "request"],
    ]
    assert seen["calls"] == [["time", "{}"]]


async def test_a_model_without_tools_is_offered_none(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        provider = LocalProvider(
            "local", engine, find, default_model="fake", options=LocalOptions(tools=False)
        )
        assert not provider.capabilities().tools
        response = await collect(provider.chat(ask("request", tools=(TIME,), tool_choice="time")))
        assert json.loads(response.final_text)["tools"] == []
        response = await collect(provider.chat(ask(f"say {CALL}", tools=(TIME,))))
        assert (response.final_text, response.tool_calls) == (CALL, ())


async def test_each_model_has_the_size_of_its_own_context(tmp_path: Path) -> None:
    sizes = {"fake": 4_096, "small": 1_024, "any": 0}

    def sized(name: str) -> LocalModel:
        if name not in sizes:
            raise ModelNotFoundError(f"there is no model {name!r}")
        found = find("fake")
        config = msgspec.structs.replace(found.config, alias=name, n_ctx=sizes[name])
        return msgspec.structs.replace(found, config=config)

    async with fake_engine(tmp_path) as (engine, _):
        provider = LocalProvider("local", engine, sized, default_model="fake")
        names = ("", "fake", "small", "any", "gone")
        told = [provider.context_size_of(name) for name in names]
        assert told == [4_096, 4_096, 1_024, 0, 0]
        assert provider.capabilities().context_size == 4_096
        await provider.check()
        assert provider.context_size_of("fake") == 512
        book = ModelBook()
        book.note_size(provider, "small", 9_999)
        assert book.size(provider, "small") == 1_024
        assert book.size(provider, "any") == 512


def test_p12_a_schema_that_cannot_be_held_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loose = LooseSchemas()
    for _ in range(3):
        loose.note({"files__move": "a pattern that is none"})
    loose.note({"files__move": "another reason", "web__get": "a pattern that is none"})
    own = [each for each in caplog.records if each.name == LooseSchemas.__module__]
    assert [each.args for each in own] == [
        ("files__move", "a pattern that is none"),
        ("files__move", "another reason"),
        ("web__get", "a pattern that is none"),
    ]
    loose.note({f"t{i}": "x" for i in range(2 * MAX_LOOSE)})
    assert len(loose.reasons) == MAX_LOOSE


@pytest.mark.parametrize("fallback", ["ids must have 9 characters", ""])
def test_r3_what_a_fallback_of_the_chat_template_asked_for_is_read(fallback: str) -> None:
    template = "[TOOL_CALLS][ARGS]"
    said: list[Delta] = []
    for _ in range(2):
        answer = LocalAnswer("local", f"m {fallback}", ask("x", tools=(TIME,)), LooseSchemas())
        schemas: dict[str, dict[str, Any]] = {TIME.name: TIME.parameters}
        answer.parser = parser_of(template, ParserOptions(schemas=schemas), habits_of(template))
        evaluated = GenerationStarted(
            id=1, tokens=9, cached=0, elapsed_ms=1.0, n_ctx=512, fallback=fallback
        )
        said = [*answer.take(evaluated), *answer.take(Tokens(id=1, text=f"So: {CALL}", count=9))]
    calls = [each.name for each in said if isinstance(each, CallDelta)]
    assert calls == (["time"] if fallback else [])


def done(**more: Any) -> GenerationDone:
    return GenerationDone(
        id=1,
        reason="stop",
        prompt_tokens=9,
        cached_tokens=0,
        completion_tokens=6,
        elapsed_ms=1.0,
        **more,
    )


def test_r2_an_answer_that_was_held_for_a_part_of_it_only_says_so() -> None:
    for lifted in ("the grammar became too complex", ""):
        answer = LocalAnswer("local", "m", ask("x"), LooseSchemas())
        *notes, finished = answer.take(done(lifted=lifted))
        assert isinstance(finished, Finished)
        told = [each.text.endswith(lifted) for each in notes if isinstance(each, Notice)]
        assert told == [True] * bool(lifted)


@each_row(("likely", "is_unsure"), [(0.2, True), (0.25, False), (1.0, False), (float("nan"), True)])
def test_an_answer_whose_calls_are_unlikely_says_so(likely: float, is_unsure: bool) -> None:
    answer = LocalAnswer("local", "m", ask("x"), LooseSchemas())
    for least, wanted in ((0.25, is_unsure), (0.0, likely != likely)):
        answer.sure_from = least
        (finished,) = answer.take(done(likely=likely))
        assert isinstance(finished, Finished)
        assert finished.is_unsure is wanted


def test_h8_a_client_is_told_what_the_arguments_of_its_tools_are_not_held_to() -> None:
    evaluated = GenerationStarted(
        id=1, tokens=9, cached=0, elapsed_ms=1.0, n_ctx=512, quarantined={"time": "not (at #)"}
    )
    for is_client in (True, False):
        request = ask("x", tools=(TIME,), streams_calls=is_client)
        loose = LooseSchemas()
        *notes, told = LocalAnswer("local", "m", request, loose).take(evaluated)
        assert isinstance(told, PromptEvaluated)
        left_out = [each.text[-20:] for each in notes if isinstance(each, Notice)]
        assert left_out == ["left out: not (at #)"] * is_client
        assert loose.reasons == {"time": "not (at #)"}


def test_r10_an_answer_that_was_ended_as_a_loop_says_so() -> None:
    for is_loop in (True, False):
        answer = LocalAnswer("local", "m", ask("x"), LooseSchemas())
        done = GenerationDone(
            id=1,
            reason="stop",
            prompt_tokens=9,
            cached_tokens=0,
            completion_tokens=600,
            elapsed_ms=1.0,
            is_loop=is_loop,
        )
        *notes, finished = answer.take(done)
        assert isinstance(finished, Finished) and finished.reason == "stop"
        told = ["repeat itself" in each.text for each in notes if isinstance(each, Notice)]
        assert told == [True] * is_loop


def test_r5_whether_an_answer_begins_in_reasoning_is_told_by_the_prompt_as_rendered() -> None:
    template = (
        "<tool_call>{% if add_generation_prompt %}<think>"
        "{% if enable_thinking is false %}</think>{% endif %}{% endif %}"
    )
    variables = {"enable_thinking": False}
    request = msgspec.structs.replace(
        ask("x", tools=(TIME,)), sampling=Sampling(template_kwargs=variables)
    )
    generate = generate_for(request, GREEDY, LocalOptions())
    assert generate.template_kwargs == variables
    for end, expected in (("<think>", ReasoningDelta), ("<think></think>", TextDelta)):
        answer = LocalAnswer("local", "m", request, LooseSchemas())
        held, answer.parser, answer.parser_after = fitted(generate, request, template)
        assert not held.grammar.in_reasoning  # the worker sees where the prompt ends
        evaluated = GenerationStarted(
            id=1, tokens=9, cached=0, elapsed_ms=1.0, n_ctx=512, prompt_end=end
        )
        answer.take(evaluated)
        (said,) = answer.take(Tokens(id=1, text="So", count=1))
        assert isinstance(said, expected)


async def test_r5_reasoning_that_passes_its_limit_is_ended_and_the_answer_goes_on_behind_it(
    tmp_path: Path,
) -> None:
    async with local(tmp_path) as (provider, journal):
        wishes = Sampling(reasoning_tokens=5, max_tokens=500)
        deltas = await deltas_of(provider, ask("ponder", sampling=wishes))
        started = journal.having("generate")
    thought = "".join(each.text for each in deltas if isinstance(each, ReasoningDelta))
    text = "".join(each.text for each in deltas if isinstance(each, TextDelta))
    assert set(thought.split()) == {"on"}
    assert text == f"[<think>{thought} </think>\n\n]"
    assert sum(isinstance(each, PromptEvaluated) for each in deltas) == 1
    assert started[0]["max_tokens"] == 500
    spent = 500 - started[1]["max_tokens"]
    assert spent >= 5 and spent == 1 + len(thought.split())
    last = deltas[-1]
    assert isinstance(last, Finished) and last.reason == "stop"
    usage = msgspec.structs.replace(last.usage, tokens_per_s=0.0)
    assert usage == HopUsage(prompt_tokens=10, cached_tokens=2, completion_tokens=spent + 1)


async def test_r5_a_limit_of_reasoning_leaves_other_answers_alone(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, journal):
        for said, limit in (
            ("tokens 20", 5),
            ("chars <think>hm</think>so it is", 30),
            ("chars <think>hm", None),
        ):
            wishes = Sampling(reasoning_tokens=limit)
            with_limit = await deltas_of(provider, ask(said, sampling=wishes))
            assert "".join(e.text for e in with_limit if isinstance(e, TextDelta)) in {
                "".join(f"t{n} " for n in range(20)),
                "so it is",
                "",
            }
        assert len(journal.having("generate")) == 3


@each_row(
    ("template", "prompt_end", "written", "expected"),
    [
        ("<tool_call>", "assistant\n<think>\n", "hm", "</think>"),
        ("<tool_call>", "assistant\n", "<think>hm", "</think>"),
        ("<tool_call>", "assistant\n<think>\n\n</think>\n\n", "hm", ""),
        ("<tool_call>", "assistant\n", "hm", ""),
        ("[TOOL_CALLS][ARGS]", "", "[THINK]hm", "[/THINK]"),
        ("<|start|><|channel|><|message|>", "", "<|channel|>analysis<|message|>hm", ""),
    ],
)
def test_r5_what_ends_the_reasoning_of_an_answer_is_its_familys(
    template: str, prompt_end: str, written: str, expected: str
) -> None:
    assert end_of_thought(template, prompt_end, written) == expected


@each_row(
    ("said", "shown"),
    [
        ("42</tool_call>", "42"),
        ("42\n</tool_call>\n</tool_call>\n", "42\n"),
        ("</tool_call>", ""),
        ("The mark is </tool_call>.", "The mark is </tool_call>."),
        ("It ends with `</tool_call>`", "It ends with `</tool_call>`"),
        ("a < b", "a < b"),
        ("a </tool", "a </tool"),
        ("<tool_call>oops</tool_call>", "<tool_call>oops</tool_call>"),
    ],
)
def test_r7_a_mark_that_closes_no_call_is_no_end_of_an_answer(said: str, shown: str) -> None:
    for step in (1, 3, len(said)):
        end = StrayMarks()
        pieces = [end.feed(said[at : at + step]) for at in range(0, len(said), step)]
        assert "".join([*pieces, end.finish()]).rstrip("\n") == shown.rstrip("\n"), step


async def test_r7_the_mark_of_a_result_before_a_call_is_left_out(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        for said, shown in (
            (f"<tool_response>\n{CALL}", ""),
            (f"<tool_response>{CALL}\n<tool_response>\n{CALL}", ""),
            (f"<tool_response>\nnoon\n{CALL}", "<tool_response>\nnoon"),
            (f"Look: <tool_response>\n{CALL}", "Look: <tool_response>"),
        ):
            response = await collect(provider.chat(ask(f"chars {said}", tools=(TIME,))))
            assert (response.final_text.strip(), len(response.tool_calls)) == (
                shown, said.count(CALL)
            )  # fmt: skip
        for said in ("<tool_response>\n18 C", "<tool_response>"):
            response = await collect(provider.chat(ask(f"chars {said}", tools=(TIME,))))
            assert response.final_text == said
