"""A worker that speaks the engine protocol and misbehaves as it is told. Needs no model.

Run as `python fake_worker.py [--journal FILE] --fd N`. The scenario is the stem of the model's
file for loading, and the first word of the last message for a generation:

    loading      garbage.gguf, dies.gguf, aborts.gguf, refuses.gguf, hangs.gguf; any other loads;
                 lingers.gguf takes its time to quit, grows.gguf becomes larger meanwhile,
                 fills.gguf fills its memory in part, and waits for one byte in fills.go; then
                 fills the rest, and waits for another
    generation   say TEXT | tokens N | endless | die | abort | silent | deaf | template | ponder |
                 fail CODE | garbage | noisy | quiet | chars TEXT | env | request |
                 leaves FILE, which closes the socket and ends when the file is there

Every start, request and cancel is a line of the journal.
"""

import argparse
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import msgspec

from clawd.engine.protocol import (
    CancelGeneration,
    CountTokens,
    Detokenize,
    Embed,
    Embedded,
    FrameBuffer,
    FromWorker,
    Generate,
    GenerationDone,
    GenerationFailed,
    GenerationStarted,
    Load,
    LoadFailed,
    ModelInfo,
    ModelReady,
    Ping,
    Pong,
    PromptStep,
    QuestionFailed,
    Quit,
    Rendered,
    RenderPrompt,
    TokenCounts,
    Tokenize,
    TokenPieces,
    Tokens,
    TokenText,
    Warm,
    Warmth,
    decode_to_worker,
    encode,
)
from clawd.wire.events import PromptProgress


class FakeWorker:
    """Answers on one socket; each generation that takes time runs in a thread."""

    def __init__(self, channel: socket.socket, journal: Path | None) -> None:
        self._channel = channel
        self._journal = journal
        self._lock = threading.Lock()
        self._cancelled: dict[int, threading.Event] = {}
        self._is_deaf = False
        self._lingers = False
        self._held: list[bytes] = []

    def note(self, **facts: object) -> None:
        if self._journal is not None:
            with self._journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"pid": os.getpid(), **facts}) + "\n")

    def run(self) -> None:
        buffer = FrameBuffer()
        while data := self._channel.recv(65536):
            for body in buffer.feed(data):
                frame = decode_to_worker(body)
                match frame:
                    case Load():
                        self.load(frame)
                    case Generate():
                        self.generate(frame)
                    case CancelGeneration():
                        self.note(cancel=frame.id)
                        if frame.id in self._cancelled:
                            self._cancelled[frame.id].set()
                    case Warm():
                        self.note(warm=len(frame.request.messages))
                        self.send(Warmth(tokens=100, ready=100))
                    case CountTokens():
                        counts = tuple(len(text.split()) for text in frame.texts)
                        self.send(TokenCounts(id=frame.id, counts=counts))
                    case Tokenize() | Detokenize() | RenderPrompt() | Embed():
                        self.answer_question(frame)
                    case Ping():
                        if not self._is_deaf:
                            self.send(Pong(id=frame.id, running=0, queued=0, cached_sequences=0))
                    case Quit():
                        self.note(quit=True, save_limit_s=frame.save_limit_s)
                        if self._lingers:
                            time.sleep(0.3)
                            self.note(saved=True)
                        return

    def send(self, frame: FromWorker) -> None:
        with self._lock:
            self._channel.sendall(encode(frame))

    def load(self, frame: Load) -> None:
        config = frame.config
        self.note(load=config.path)
        match Path(config.path).stem:
            case "garbage":
                self._channel.sendall(b"\0\0\0\4\xc1\xc1\xc1\xc1")
            case "dies":
                print("cannot map the file", file=sys.stderr, flush=True)
                os._exit(3)
            case "aborts":
                print("GGML_ASSERT(n > 0) failed\x1b[31m", file=sys.stderr, flush=True)
                os.abort()
            case "refuses":
                self.send(LoadFailed(code="model_load", message="bad magic"))
            case "lingers":
                self._lingers = True
                self.send(ModelReady(info=_info(config.alias)))
            case "grows":
                # Once, as if the load had begun before the copy was whole.
                path = Path(config.path)
                if path.stat().st_size < 100:
                    path.write_bytes(b"x" * 100)
                self.send(ModelReady(info=_info(config.alias)))
            case "fills":
                # The memory of one whose file is read in step by step.
                go = Path(config.path).with_suffix(".go")
                for pieces, size in ((5, 1), (3, 2)):
                    self._held += [b"x" * (16 << 20) for _ in range(pieces)]
                    while not go.exists() or go.stat().st_size < size:
                        time.sleep(0.01)
                self.send(ModelReady(info=_info(config.alias)))
            case "hangs":
                time.sleep(3600)
            case _:
                self.send(ModelReady(info=_info(config.alias)))

    def answer_question(self, frame: Tokenize | Detokenize | RenderPrompt | Embed) -> None:
        """Answer by words; `die` ends the worker, `fail` fails, `hang` is never answered."""
        self.note(question=type(frame).__name__, id=frame.id)
        match frame:
            case Tokenize():
                words = tuple(range(len(frame.text.split())))
                pieces = tuple(word.encode() for word in frame.text.split())
                self.send(TokenPieces(id=frame.id, tokens=words, pieces=pieces))
            case Detokenize():
                self.send(TokenText(id=frame.id, data=b" ".join(b"%d" % t for t in frame.tokens)))
            case RenderPrompt():
                self.render(frame)
            case Embed():
                self.embed(frame)

    def render(self, frame: RenderPrompt) -> None:
        text = "\n".join(f"{each.role}: {each.content}" for each in frame.messages)
        deadline = time.monotonic() + 3600
        while text.endswith("template") and time.monotonic() < deadline:
            pass
        self.send(Rendered(id=frame.id, text=text, tokens=len(text.split())))

    def embed(self, frame: Embed) -> None:
        match frame.inputs[0]:
            case "die":
                os._exit(7)
            case "fail":
                self.send(
                    QuestionFailed(
                        id=frame.id, code="context_full", message="no", n_prompt_tokens=9, n_ctx=4
                    )
                )
            case "hang":
                self._cancelled[frame.id] = threading.Event()
            case _:
                count = len(frame.inputs)
                one = struct.pack("<2f", 0.6, 0.8)
                self.send(Embedded(id=frame.id, vectors=(one,) * count, counts=(2,) * count))

    def generate(self, frame: Generate) -> None:
        if frame.prompt is not None:
            self.prefill(frame.id)
            self.answer(frame, "raw", f"{frame.prompt}")
            return
        word, _, rest = frame.messages[-1].content.partition(" ")
        if frame.appended:
            word, rest = "say", f"\n[{frame.messages[-1].content}{frame.appended}]"
        sampling = msgspec.to_builtins(frame.sampling)
        self.note(generate=frame.id, word=word, **sampling)
        self._cancelled[frame.id] = threading.Event()
        match word:
            case "die":
                print("about to die", file=sys.stderr, flush=True)
                os._exit(7)
            case "abort":
                for number in range(100):
                    print(f"line {number}", file=sys.stderr)
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGABRT)
            case "template":
                deadline = time.monotonic() + 3600
                while time.monotonic() < deadline:
                    pass
            case "silent":
                self.prefill(frame.id)
                time.sleep(3600)
            case "deaf":
                self._is_deaf = True
            case "garbage":
                self._channel.sendall(b"\xff\xff\xff\xff" + b"x" * 100)
            case "fail":
                self.send(
                    GenerationFailed(
                        id=frame.id, code=rest, message=f"it is {rest}", retry_after_s=2.5
                    )
                )
            case "quiet":
                self.prefill(frame.id)
            case "leaves":
                self.leave(Path(rest))
            case "endless" | "ponder":
                begun = "<think>" if word == "ponder" else ""
                threading.Thread(target=self.endless, args=(frame.id, begun), daemon=True).start()
            case _:
                self.prefill(frame.id)
                self.answer(frame, word, rest)

    def leave(self, go: Path) -> None:
        self._channel.close()
        self.note(left=True)
        while not go.exists():
            time.sleep(0.01)
        print("why it left", file=sys.stderr, flush=True)
        os._exit(3)

    def prefill(self, generation: int) -> None:
        progress = PromptProgress(processed=5, cached=2, total=10)
        self.send(PromptStep(id=generation, progress=progress))
        self.send(GenerationStarted(id=generation, tokens=10, cached=2, elapsed_ms=1.5, n_ctx=512))

    def answer(self, frame: Generate, word: str, rest: str) -> None:
        texts = [rest]
        if word == "tokens":
            texts = [f"t{number} " for number in range(int(rest))]
        if word == "chars":
            texts = list(rest)
        if word == "noisy":
            sys.stderr.write("x" * 300_000 + "\nlast line\n")
            sys.stderr.flush()
        if word == "env":
            texts = [json.dumps(dict(os.environ))]
        if word == "request":
            texts = [
                json.dumps(
                    {
                        "messages": [[m.role, m.content] for m in frame.messages],
                        "variables": frame.template_kwargs,
                        "calls": [
                            [c.name, c.arguments] for m in frame.messages for c in m.tool_calls
                        ],
                        "tools": frame.tools,
                        "max_tokens": frame.sampling.max_tokens,
                        "temperature": frame.sampling.temperature,
                        "stop": frame.sampling.stop,
                        "grammar": msgspec.to_builtins(frame.grammar),
                    }
                )
            ]
        for text in texts:
            self.send(Tokens(id=frame.id, text=text, count=1))
        self.done(frame.id, len(texts))

    def endless(self, generation: int, begun: str) -> None:
        self.prefill(generation)
        if begun:
            self.send(Tokens(id=generation, text=begun, count=1))
        while not self._cancelled[generation].wait(0.005):
            self.send(Tokens(id=generation, text="on ", count=1))
        self.done(generation, 1, cancelled=True)

    def done(self, generation: int, count: int, *, cancelled: bool = False) -> None:
        self.send(
            GenerationDone(
                id=generation,
                reason="cancelled" if cancelled else "stop",
                prompt_tokens=10,
                cached_tokens=2,
                completion_tokens=count,
                elapsed_ms=10.0,
            )
        )


def _info(alias: str) -> ModelInfo:
    return ModelInfo(
        alias=alias,
        architecture="fake",
        description="no model at all",
        n_params=1,
        size_bytes=1,
        n_ctx=512,
        n_ctx_train=512,
        n_vocab=10,
        n_parallel=4,
        chat_template=os.environ.get("OMP_FAKE_TEMPLATE", "<tool_call>"),
        load_ms=1.0,
    )


def main() -> None:
    """Serve until the socket closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--journal", type=Path)
    options = parser.parse_args()
    worker = FakeWorker(socket.socket(fileno=options.fd), options.journal)
    worker.note(start=True)
    worker.run()


if __name__ == "__main__":
    main()
