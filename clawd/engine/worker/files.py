"""The files of a model, looked at before llama.cpp opens them, and why one cannot be loaded."""

from pathlib import Path

_MAGIC = b"GGUF"


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
