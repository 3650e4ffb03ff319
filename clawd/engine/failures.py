"""How a worker's death and a failed load are told: what happened, its last lines, what to do."""

import signal
from collections.abc import Sequence
from typing import Literal, assert_never

import msgspec

from clawd.engine.protocol import GenerationFailed, LoadFailed, QuestionFailed
from clawd.errors import (
    BusyError,
    ClawError,
    ContextFullError,
    EngineError,
    InvalidRequestError,
    ModelLoadError,
    WorkerDiedError,
)
from clawd.paths import install_line

KillCause = Literal["template", "step", "other"]

BUSY_RETRY_S = 5.0
STARTED_AGAIN = "It is started again on next use."

_LESS_MEMORY = "lower ctx_size in [engine] or in the model's own section, or use a smaller model."
# What the worker and C++ write last when memory runs out.
_OUT_OF_MEMORY = ("out of memory", "std::bad_alloc")

_BY_SIGNAL: dict[int, str] = {
    signal.SIGKILL: f" If nobody killed it, memory ran out: {_LESS_MEMORY}",
    signal.SIGBUS: " Its model file was cut or overwritten while it was in use; replace such a "
    "file as a whole: `clawctl model add --force`.",
    signal.SIGILL: " This processor lacks an instruction that llama.cpp was built with: install "
    "llama-cpp-python from source.",
}
# By the code of a LoadFailed: the code it is known by outside, and what to do.
_BY_LOAD_CODE = {
    "model_not_found": ("model_not_found", "`clawctl model list` shows those that are there."),
    "out_of_memory": ("model_load", _LESS_MEMORY.capitalize()),
    "engine_missing": (
        "model_load",
        f"Install it with: {install_line('local')}\nOr let a server answer: clawctl onboard",
    ),
}
_WHOLE = "Is the file whole, and a model for text? Get it again, or use another model."


class WorkerDeath(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker ended that was not told to.

    Attributes:
        cause: what the supervisor did or saw: it `exited`, or was killed because it showed no
            sign of life while the chat `template` was rendered, or in a `step`, or `other`.
        running: ids of the generations that it took along.
        signal: what ended it when it `exited`, or 0.
    """

    model: str
    pid: int
    reason: str
    cause: KillCause | Literal["exited"]
    stderr: tuple[str, ...]
    running: tuple[int, ...]
    signal: int = 0

    def error(self) -> WorkerDiedError:
        """Return it as an error, with the worker's last lines."""
        last = "\n".join(self.stderr)
        return WorkerDiedError(
            f"the engine worker of model {self.model} (pid {self.pid}) died: {self.reason}."
            + (f" Its last lines:\n{last}" if last else " It wrote nothing to stderr."),
            hint=self._hint(),
        )

    def _hint(self) -> str:
        match self.cause:
            case "template":
                return (
                    "Its chat template is marked bad: use another model, or try it again after "
                    f"`clawctl model unload {self.model}`."
                )
            case "step":
                return (
                    f"{STARTED_AGAIN} A machine that is only slow needs a larger watchdog_s in "
                    "[engine]."
                )
            case "exited":
                if any(sign in line for line in self.stderr for sign in _OUT_OF_MEMORY):
                    return f"{STARTED_AGAIN} Memory ran out: {_LESS_MEMORY}"
                return STARTED_AGAIN + _BY_SIGNAL.get(self.signal, "")
            case "other":
                return STARTED_AGAIN
            case _:
                assert_never(self.cause)


def load_error(model: str, failed: LoadFailed) -> ModelLoadError:
    """Return what a worker says about a model that it cannot load as an error."""
    code, hint = _BY_LOAD_CODE.get(failed.code, (failed.code, _WHOLE))
    return ModelLoadError(f"model {model} cannot be loaded: {failed.message}", code=code, hint=hint)


def failure(failed: GenerationFailed | QuestionFailed) -> ClawError:
    """Return what a worker says about something that it cannot do as an error."""
    message, hint = failed.message, failed.hint
    match failed.code:
        case "busy":
            wait_s = failed.retry_after_s if isinstance(failed, GenerationFailed) else 1.0
            return BusyError(message, retry_after_s=wait_s, hint=hint)
        case "context_full":
            counts = {"n_prompt_tokens": failed.n_prompt_tokens, "n_ctx": failed.n_ctx}
            return ContextFullError(message, hint=hint, data=counts)
        case "invalid_request":
            return InvalidRequestError(message, hint=hint)
        case _:
            return EngineError(message, code=failed.code, hint=hint)


def no_room(model: str, in_use: Sequence[str], max_loaded: int) -> BusyError:
    """Return why a model cannot be loaded beside those that are in use."""
    return BusyError(
        f"model {model} cannot be loaded now: {', '.join(sorted(in_use))} in use, and at most "
        f"{max_loaded} models may be loaded",
        retry_after_s=BUSY_RETRY_S,
        hint="Wait, or raise max_loaded in [engine].",
    )
