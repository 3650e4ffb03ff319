"""The files of a model, looked at before llama.cpp opens them, and why one cannot be loaded."""

from pathlib import Path

_MAGIC = b"GGUF"
MAX_TEXT_BYTES = 1 << 20


class LoadError(Exception):
    """The model cannot be loaded; `code` is model_not_found, out_of_memory or model_load."""

    def __init__(self, message: str, *, code: str = "model_load") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def check_file(name: str, path: Path, *, missing_code: str = "model_load") -> None:
    """Make sure that a file is there, can be read and is GGUF; `name` is what to call it.

    Raises:
        LoadError: it is not; `missing_code` is its code where there is no file.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise LoadError(f"{name} does not exist", code=missing_code) from None
    except OSError as error:
        raise LoadError(f"{name} cannot be read: {error.strerror}") from None
    if magic != _MAGIC:
        raise LoadError(f"{name} is no GGUF file: it begins with {magic!r}")


def read_text(name: str) -> str:
    """Return a text that belongs to a model, as its chat template.

    Raises:
        LoadError: it is not there, cannot be read, is empty or too long.
    """
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise LoadError(f"the chat template {name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LoadError(f"the chat template {name} is no text in UTF-8") from None
    if not text.strip() or len(data) > MAX_TEXT_BYTES:
        told = f"has {len(data)} bytes" if text.strip() else "is empty"
        raise LoadError(f"the chat template {name} {told}; expected 1 to {MAX_TEXT_BYTES}")
    return text
