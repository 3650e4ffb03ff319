"""llama.cpp's chat cases and chat templates, from the sources that the set-up unpacked.

The cases are C++: a function that builds each with a chain of calls. It is compiled with
chat_cases.hpp in the place of llama.cpp's own headers, and what comes out is a row for each case.
"""

import functools
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

SETUP = Path(__file__).parents[2] / ".setup"
SHIM = Path(__file__).with_name("chat_cases.hpp")
COMPILE_LIMIT_S = 110
# What of the file is compiled: from a line that begins so to one that begins so.
PARTS = (
    ("static common_chat_tool special_function_tool{", "// Use for PEG parser implementations"),
    ("static void test_lfm2_parser(", "static void test_template_generation_prompt"),
)
MAIN = "\nint main() { test_template_output_peg_parsers(false); }\n"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a case."""

    name: str
    arguments: str
    id: str


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a case."""

    role: str
    content: str
    reasoning: str
    tool_calls: list[Call]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A case; `continuation` is 2 to go on with the last message's text, 3 with its reasoning."""

    line: int
    template: str
    input: str
    json_schema: str
    reasoning_format: int
    enable_thinking: bool
    parallel: bool
    generation_prompt: bool
    continuation: int
    tool_choice: int
    is_partial: bool
    tools: dict[str, dict[str, Any]]
    messages: list[Said]
    expect: Said


def llama_sources() -> Path | None:
    """Return the folder with llama.cpp's chat templates and tests, None where there is none."""
    kept = [SETUP / "llama.cpp", *SETUP.glob("peer/*/source/vendor/llama.cpp")]
    return next((path for path in kept if (path / "tests" / "test-chat.cpp").is_file()), None)


def lacking_sources() -> str:
    """Return why the cases cannot be read here; "" where they can."""
    if llama_sources() is None:
        return "llama.cpp's sources are not unpacked in .setup; `make test-ci` does it"
    return "" if shutil.which("g++") else "there is no g++"


def templates() -> dict[str, str]:
    """Return llama.cpp's chat templates by name."""
    folder = llama_sources()
    assert folder is not None
    found = sorted((folder / "models" / "templates").glob("*.jinja"))
    return {path.stem: path.read_text("utf-8") for path in found}


@functools.cache
def cases() -> list[Case]:
    """Return all cases, in order."""
    folder = llama_sources()
    assert folder is not None
    source = (folder / "tests" / "test-chat.cpp").read_text("utf-8")
    body = "".join(_part(source, *borders) for borders in PARTS)
    # What the blocks check beside the cases is left out.
    body = re.sub(r"throw\s+std::runtime_error", "(void) std::runtime_error", body)
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "cases"
        code = program.with_suffix(".cpp")
        code.write_text(f'#include "{SHIM}"\n{body}{MAIN}', "utf-8")
        command = ["g++", "-std=c++20", "-O0", "-w", "-o", str(program), str(code)]
        subprocess.run(command, check=True, timeout=COMPILE_LIMIT_S)
        written = subprocess.run([program], check=True, capture_output=True, timeout=30).stdout
    rows = [row for row in written.decode("utf-8").split("\0") if row.strip()]
    return [msgspec.convert(json.loads(row, strict=False), Case) for row in rows]


def _part(source: str, start: str, end: str) -> str:
    begin = source.index(start)
    number = source.count("\n", 0, begin) + 1
    return f'#line {number} "test-chat.cpp"\n{source[begin : source.index(end, begin)]}'
