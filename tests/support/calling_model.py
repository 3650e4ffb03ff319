"""A GGUF that calls tools by a script: real for llama.cpp, and every word of it known beforehand.

Its chat template begins every answer with a token that says how many results there were since the
user spoke; the output head makes of it the step of the script with that number.

    user ─▶ <|step0|> ─▶ first call ─▶ result ─▶ <|step1|> ─▶ second call ─▶ … ─▶ the answer
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.gguf_models import EMBEDDED, write_random_gguf

_EMBEDDED_END = 2
_FIRST_UNUSED = 1508
_CONTROL, _NORMAL = 3, 1
_STRENGTH = 2.0

TEMPLATE = """\
{%- macro lead(count) -%}{{ '<|step' ~ count ~ '|>' }}{%- endmacro -%}
{%- set since = namespace(user=0) -%}
{%- for tool in tools or [] -%}
{{- '<|im_start|>tool\\n' ~ (tool | tojson) ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set since.user = 0 -%}{%- endif -%}
{%- if message.role == 'tool' -%}{%- set since.user = since.user + 1 -%}{%- endif -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' -}}
{%- if message.role == 'assistant' -%}{{ lead(since.user) }}{%- endif -%}
{{- message.content or '' -}}
{%- for call in message.tool_calls or [] -%}
{{- '<tool_call>\\n' ~ ({'name': call.function.name, 'arguments': call.function.arguments} | tojson)
    ~ '\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' ~ lead(since.user) -}}
"""


def call(tool: str, arguments: str) -> str:
    """Return the text of a call as the template writes it; arguments as `json.dumps` does."""
    return f'<tool_call>\n{{"name": "{tool}", "arguments": {arguments}}}\n</tool_call>'


def write_calling_gguf(path: Path, *steps: str, context_length: int = 32768) -> Path:
    """Write a model that says the steps, one for each hop after a user's message.

    Every step takes several tokens of the model's own, which its tokeniser would cut otherwise.
    """
    reader = gguf.GGUFReader(EMBEDDED)
    tokens = list(_read(reader, "tokens"))
    kinds = list(_read(reader, "token_type"))
    paths: list[list[int]] = []
    free = iter(range(_FIRST_UNUSED, len(tokens)))
    for number, step in enumerate(steps):
        lead = next(free)
        tokens[lead], kinds[lead] = f"<|step{number}|>", _CONTROL
        words = [next(free) for _ in range(3)]
        for word, text in zip(words, _thirds(step), strict=True):
            tokens[word], kinds[word] = _as_bytes(text), _NORMAL
        paths.append([lead, *words, _EMBEDDED_END])
    vocabulary = path.with_suffix(".vocabulary")
    _write_vocabulary(vocabulary, reader, tokens, kinds)
    write_random_gguf(
        path,
        tokenizer_from=vocabulary,
        chat_template=TEMPLATE,
        context_length=context_length,
        quantization=gguf.GGMLQuantizationType.F32,
    )
    vocabulary.unlink()
    _teach(path, paths)
    return path


def _teach(path: Path, paths: Sequence[Sequence[int]]) -> None:
    """Make the output head answer each token of a path with the next one."""
    reader = gguf.GGUFReader(path, "r+")
    matrices = {tensor.name: tensor.data for tensor in reader.tensors}
    embeddings, head = matrices["token_embd.weight"], matrices["output.weight"]
    for steps in paths:
        for token, successor in itertools.pairwise(steps):
            head[successor] += embeddings[token] * np.float32(_STRENGTH)
    reader.data.flush()


def _thirds(text: str) -> tuple[str, str, str]:
    third = len(text) // 3
    return text[:third], text[third : 2 * third], text[2 * third :]


def _as_bytes(text: str) -> str:
    """Return printable ASCII as a byte-level tokeniser writes it."""
    return text.replace(" ", "\u0120").replace("\n", "\u010a")


def _write_vocabulary(
    path: Path, reader: gguf.GGUFReader, tokens: list[str], kinds: list[int]
) -> None:
    """Write the embedded model's tokeniser with other tokens in it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(_read(reader, "model"))
    writer.add_tokenizer_pre(_read(reader, "pre"))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(_read(reader, "merges"))
    for name in ("bos_token_id", "eos_token_id", "eot_token_id", "padding_token_id"):
        number = _read(reader, name)
        if number is not None:
            writer.add_uint32(f"tokenizer.ggml.{name}", number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _read(reader: gguf.GGUFReader, key: str) -> Any:
    field = reader.fields.get(f"tokenizer.ggml.{key}")
    return field.contents() if field is not None else None
