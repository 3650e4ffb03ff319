"""What llama.cpp's mtmd says by its own helper, in a process without clawd: log probabilities.

    python mtmd_reference.py MODEL PROJECTOR TOKENS < {"prompt": "… <__media__> …", "files": […]}

Prints a JSON list: for each generated token its id and the log probabilities of all tokens.
"""

import ctypes
import json
import sys

import llama_cpp.llama_cpp as lib
import numpy as np
from llama_cpp import mtmd_cpp as mtmd

N_CTX = 2048
BATCH = 512


def main() -> None:
    model_file, projector_file, count = sys.argv[1:]
    asked = json.load(sys.stdin)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(model_file.encode(), lib.llama_model_default_params())
    options = lib.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = N_CTX, BATCH, BATCH
    options.n_threads = options.n_threads_batch = 1
    context = lib.llama_init_from_model(model, options)
    params = mtmd.mtmd_context_params_default()
    params.n_threads = 1
    eye = mtmd.mtmd_init_from_file(projector_file.encode(), model, params)
    assert eye, "the projector does not load"
    vocab = lib.llama_model_get_vocab(model)
    position = read_prompt(eye, context, asked["prompt"], asked["files"])
    said = []
    for _ in range(int(count)):
        found = lib.llama_get_logits_ith(context, -1)
        logits = np.ctypeslib.as_array(found, (lib.llama_vocab_n_tokens(vocab),)).astype(float)
        logprobs = logits - logits.max()
        logprobs -= np.log(np.exp(logprobs).sum())
        token = int(logprobs.argmax())
        said.append([token, logprobs.tolist()])
        step(context, token, position)
        position += 1
    json.dump(said, sys.stdout)


def read_prompt(eye: int, context: int, prompt: str, files: list[str]) -> int:
    """Evaluate a prompt with pictures; return the position behind it."""
    bitmaps = [mtmd.mtmd_helper_bitmap_init_from_file(eye, file.encode(), False) for file in files]
    assert all(bitmaps), "a picture cannot be read"
    data = prompt.encode()
    text = mtmd.mtmd_input_text(data, len(data), True, True)
    chunks = mtmd.mtmd_input_chunks_init()
    handles = (mtmd.mtmd_bitmap_p_ctypes * len(bitmaps))(*bitmaps)
    assert mtmd.mtmd_tokenize(eye, chunks, ctypes.byref(text), handles, len(bitmaps)) == 0
    end = lib.llama_pos(0)
    assert not mtmd.mtmd_helper_eval_chunks(
        eye,
        context,
        chunks,
        0,
        0,
        BATCH,
        True,
        ctypes.byref(end),
    )
    return int(end.value)


def step(context: int, token: int, position: int) -> None:
    batch = lib.llama_batch_init(1, 0, 1)
    batch.n_tokens, batch.token[0], batch.pos[0] = 1, token, position
    batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, 1
    assert lib.llama_decode(context, batch) == 0
    lib.llama_batch_free(batch)


if __name__ == "__main__":
    main()
