"""POST /v1/completions: texts and token lists that no chat template touches, gone on with."""

from aiohttp import web

from clawd.channels.http.answering import answer_many
from clawd.channels.http.app import GATEWAY, Gateway, caller_of
from clawd.channels.http.body import invalid, read_object
from clawd.channels.http.catalogue import find
from clawd.channels.http.openai.bias import with_token_ids
from clawd.channels.http.openai.completion_answer import CompletionAnswer
from clawd.channels.http.openai.completion_request import CompletionAsked, read_completion
from clawd.channels.http.side_by_side import open_many
from clawd.providers.abilities import Tokenizing, able
from clawd.providers.base import RawPrompt


async def post_completions(request: web.Request) -> web.StreamResponse:
    """Answer POST /v1/completions."""
    gateway = request.app[GATEWAY]
    asked = read_completion(await with_token_ids(gateway, await read_object(request)), request)
    before = await _echoed(gateway, asked)
    opened = await open_many(gateway.generations, asked.requests, caller_of(request))
    dialect = CompletionAnswer(asked.telling, before=before, choices=asked.choices)
    return await answer_many(request, opened, dialect, stream=asked.telling.stream)


async def _echoed(gateway: Gateway, asked: CompletionAsked) -> list[str]:
    """Return the text before each choice: nothing, or its prompt."""
    if not asked.telling.echo:
        return [""] * len(asked.requests)
    model = asked.requests[0].model
    texts: dict[RawPrompt, str] = {}
    for prompt in asked.prompts:
        if prompt not in texts:
            texts[prompt] = await _text_of(gateway, model, prompt)
    return [texts[prompt] for prompt in asked.prompts]


async def _text_of(gateway: Gateway, model: str, prompt: RawPrompt) -> str:
    if isinstance(prompt, str):
        return prompt
    choice = await find(gateway, model)
    found = able(choice.provider, Tokenizing, choice.model)  # type: ignore[type-abstract]
    if found is None:
        raise invalid("echo", f"provider {choice.provider.name()} cannot tell the text of tokens")
    provider, own_name = found
    return (await provider.detokenize(own_name, prompt)).decode(errors="replace")


ROUTES = [
    web.post("/v1/completions", post_completions),
    web.post("/completions", post_completions),
]
