"""Rules of the house that no checker knows: sizes, docstrings, nothing unfinished."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("clawd", "clawctl", "packaging")
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_INIT_LINES = 40
# Written so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sh", ".service", ".socket", ".cfg", ".jinja", ""}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    )


@functools.cache
def functions(path: Path) -> list[Function]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def place(path: Path, node: Function) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def parameter_count(node: Function) -> int:
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len([one for one in named if one.arg not in {"self", "cls"}])


def test_there_are_sources_to_judge() -> None:
    assert len(sources(*PACKAGES)) > 20


def test_no_function_is_longer_than_a_screen() -> None:
    lengths = {
        place(path, node): (node.end_lineno or node.lineno) - node.lineno + 1
        for path in sources(*PACKAGES)
        for node in functions(path)
    }
    assert {name: count for name, count in lengths.items() if count > MAX_FUNCTION_LINES} == {}


def test_no_function_takes_more_than_six_parameters() -> None:
    counts = {
        place(path, node): parameter_count(node)
        for path in sources(*PACKAGES)
        for node in functions(path)
    }
    assert {name: count for name, count in counts.items() if count > MAX_PARAMETERS} == {}


def test_every_module_says_what_it_holds() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources(*PACKAGES)
        if (text := path.read_text(encoding="utf-8")).strip()
        and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def test_package_files_are_empty_or_a_face() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources("clawd", "clawctl")
        if path.name == "__init__.py"
    }
    assert {name: count for name, count in lengths.items() if count > MAX_INIT_LINES} == {}


def test_nothing_is_left_unfinished() -> None:
    folders = [ROOT / name for name in (*PACKAGES, "tests", "systemd", "etc", "docs", ".ci")]
    files = [path for folder in folders for path in folder.rglob("*")]
    files += [path for path in ROOT.glob("*") if not path.name.startswith(".")]
    marked = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        if path.is_file() and path.suffix in TEXT_SUFFIXES
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert marked == []
