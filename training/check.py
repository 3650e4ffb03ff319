"""Checks that a GGUF file is the model that was trained.

    python -m training.check MODEL.gguf

Three things can drift apart without a loud failure: the chat template and the training text, the
ids of llama.cpp's tokenizer and of ours, and the logits of llama.cpp and of the network in PyTorch.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment
from llama_cpp import Llama
from tokenizers import Tokenizer

from training.data.conversations import Conversation, Conversations
from training.data.rendering import segments
from training.gguf_file import Shape, read_weights
from training.model import Model
from training.tokens import TOKENIZER

SAMPLE = 1000
COMPARED_PROMPTS = 20
SEED = 77


def messages_of(conversation: Conversation, *, arguments_as_text: bool) -> list[dict]:
    """Returns a conversation as chat messages, with earlier ones that the template must drop."""
    messages: list[dict] = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "an earlier question"},
        {"role": "user", "content": f"<context>\nfacts\n</context>\n\n{conversation.request}"},
    ]
    for step in conversation.steps:
        arguments = step.arguments
        if arguments_as_text:
            arguments = json.dumps(arguments, ensure_ascii=False)
        call = {"function": {"name": step.tool, "arguments": arguments}}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": step.result},
        ]
    return messages


def check_template(source: str, conversations: list[Conversation]) -> list[str]:
    """Returns the prompts, all up to the last answer; exits where one differs from training."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(source)
    prompts = []
    for index, conversation in enumerate(conversations):
        messages = messages_of(conversation, arguments_as_text=index % 2 == 0)
        tools = [{"type": "function"}] if conversation.has_tools else None
        prompt = template.render(messages=messages, tools=tools, add_generation_prompt=True)
        trained = "".join(text for text, _ in segments(conversation)[:-1])
        if prompt != trained:
            raise SystemExit(f"the template renders {prompt!r}, training has {trained!r}")
        prompts.append(prompt)
    return prompts


def check_tokens(llama: Llama, prompts: list[str]) -> list[list[int]]:
    """Returns the ids of the prompts; exits where llama.cpp's differ from training's."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    encoded = []
    for prompt in prompts:
        ids = tokenizer.encode(prompt).ids
        theirs = llama.tokenize(prompt.encode(), add_bos=False, special=True)
        if theirs != ids:
            raise SystemExit(f"llama.cpp reads {prompt!r} as {theirs}, training as {ids}")
        encoded.append(ids)
    return encoded


def check_logits(llama: Llama, model: Path, prompts: list[list[int]]) -> tuple[int, float]:
    """Returns on how many prompts both choose the same token, and the largest difference."""
    network = Model(Shape())
    weights = read_weights(model, Shape())
    network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    same, largest = 0, 0.0
    for ids in prompts:
        llama.reset()
        llama.eval(ids)
        theirs = llama.scores[len(ids) - 1]
        with torch.no_grad():
            ours = network.logits(network.hidden(torch.tensor([ids])))[0, -1].numpy()
        same += int(ours.argmax()) == int(theirs.argmax())
        largest = max(largest, float(np.abs(ours - theirs).max()))
    return same, largest


def main() -> None:
    model = Path(sys.argv[1])
    torch.set_num_threads(1)
    llama = Llama(str(model), n_ctx=1024, n_threads=1, verbose=False, logits_all=True)
    source = Conversations(SEED, held_out=True, unseen=True)
    prompts = check_template(
        llama.metadata["tokenizer.chat_template"], [source.draw() for _ in range(SAMPLE)]
    )
    encoded = check_tokens(llama, prompts)
    same, largest = check_logits(llama, model, encoded[:COMPARED_PROMPTS])
    print(f"template and ids agree on {SAMPLE} prompts; the next token on {same} of", end=" ")
    print(f"{COMPARED_PROMPTS}, logits within {largest:.2f}")
    if same < COMPARED_PROMPTS - 1:
        raise SystemExit("llama.cpp does not compute the network that was trained")


if __name__ == "__main__":
    main()
