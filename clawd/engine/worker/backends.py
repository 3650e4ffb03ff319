"""The part of llama.cpp that computes, where it was built apart from the rest.

A build for one processor has it inside. One for many (GGML_BACKEND_DL, GGML_CPU_ALL_VARIANTS) has a
module for each generation beside the library, as `libggml-cpu-haswell.so`; the fastest that runs
here is to be loaded before anything else is asked (ggml-backend.h).
"""

import ctypes
import os
import re
from pathlib import Path
from typing import Any

from clawd.engine.worker.files import LoadError

_OWN_PROCESS = Path("/proc/self/maps")
_MODULE = re.compile(r"/libggml-cpu-([\w.]+)\.so$", re.MULTILINE)


def load_backends(library: Any) -> None:
    """Load what computes from beside the library, unless it is inside.

    Args:
        library: the binding's low-level module.

    Raises:
        LoadError: there is nothing in it that runs on this processor.
    """
    name, pointer = ctypes.c_char_p, ctypes.c_void_p
    try:
        by_name = library.ctypes_function("ggml_backend_reg_by_name", [name], pointer)(_declared)
        load_all = library.ctypes_function("ggml_backend_load_all_from_path", [name], None)(
            _declared
        )
    except AttributeError:
        return  # older than modules
    if by_name(b"CPU"):
        return
    folder = library_folder(library)
    load_all(os.fsencode(folder))
    if not by_name(b"CPU"):
        raise LoadError(
            f"llama.cpp in {folder} has nothing that computes on this processor; install "
            "llama-cpp-python anew"
        )


def library_folder(library: Any) -> Path:
    """Return where the binding takes the library from."""
    chosen = os.environ.get("LLAMA_CPP_LIB_PATH")
    return Path(chosen) if chosen else Path(library.__file__).parent / "lib"


def loaded_variant() -> str:
    """Return for which processors the loaded module is, as `zen4`; "" when it is inside."""
    try:
        maps = _OWN_PROCESS.read_text("utf-8", errors="replace")
    except OSError:
        return ""
    found = _MODULE.search(maps)
    return found[1] if found else ""


def _declared() -> None:
    """Stand in for a function that the binding declares by its signature alone."""
