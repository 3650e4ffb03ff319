"""Biases of texts, as llama.cpp takes them: every token of the text gets the bias."""

from typing import Any

from clawd.channels.http.app import Gateway
from clawd.channels.http.body import field
from clawd.channels.http.catalogue import find
from clawd.providers.abilities import Tokenizing

MAX_TEXTS = 64


async def with_token_ids(gateway: Gateway, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body whose `logit_bias` names tokens by id, where the model's tokenizer is here.

    What cannot be turned into ids stays as it is, and is refused by who reads it.

    Raises:
        ClawError: the model is not there, or cannot be loaded.
    """
    pairs = _pairs(body.get("logit_bias"))
    texts = [token for token, _ in pairs if _is_text(token)]
    if not texts or len(texts) > MAX_TEXTS:
        return body
    choice = await find(gateway, field(body, "model", str, ""))
    provider = choice.provider
    # Behind a router or a chain another model may answer, to which the ids are other texts.
    if not isinstance(provider, Tokenizing):
        return body
    found: list[list[Any]] = []
    for token, bias in pairs:
        if not _is_text(token):
            found.append([token, bias])
            continue
        cut = await provider.tokenize(choice.model, token, add_special=False, parse_special=True)
        found += [[each, bias] for each in cut.tokens]
    return body | {"logit_bias": found}


def _pairs(biases: object) -> list[tuple[Any, Any]]:
    if isinstance(biases, dict):
        return list(biases.items())
    if isinstance(biases, list) and all(isinstance(p, list) and len(p) == 2 for p in biases):
        return [(token, bias) for token, bias in biases]
    return []


def _is_text(token: object) -> bool:
    return isinstance(token, str) and bool(token) and not (token.isascii() and token.isdigit())
