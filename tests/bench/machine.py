"""What the figures were taken on, in a few lines."""

import os
import platform
from pathlib import Path

import llama_cpp

from clawd.engine.worker.files import usable_cores


def describe() -> str:
    """Return processor, cores, load and versions."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"{_processor()}, {usable_cores()} cores, load {load}\n"
        f"Python {platform.python_version()}, llama-cpp-python {llama_cpp.__version__}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
