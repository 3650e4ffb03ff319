"""Counts what a reader of clawd and clawctl has to hold in the head, at one commit or two.

    python -m tests.house               the working tree
    python -m tests.house COMMIT        that commit, and the working tree beside it
    python -m tests.house OLD NEW       two commits
    python -m tests.house --lone        the modules with one importer, smallest first

`tests/test_house_rules.py` prints the table and holds its numbers down.
"""

import ast
import io
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("clawd", "clawctl")
SMALL_LINES = 60
MANY_FIELDS = 12
# Names that stand in two files because the folder says which of the two is meant.
ONE_A_FOLDER = {
    "Client": "the SDK's on asyncio and clawctl's that blocks; neither may import the other",
    "Ping": "a frame to a worker of the engine, and a method of the control socket",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Import = ast.Import | ast.ImportFrom
Counted = Function | Import | ast.ClassDef | ast.Call


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file, read once."""

    name: str
    path: Path
    is_package: bool
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[Counted]:
        """Return what of it is looked at, found in one walk."""
        return [each for each in ast.walk(self.tree) if isinstance(each, Counted)]

    @cached_property
    def code_lines(self) -> int:
        """Return its lines without docstrings, comments and blank ones."""
        documented = {line for each in self._docstrings() for line in _lines_of(each)}
        return sum(
            1
            for number, line in enumerate(self.text.splitlines(), 1)
            if number not in documented and line.strip() and not line.lstrip().startswith("#")
        )

    @cached_property
    def import_lines(self) -> int:
        """Return how many of its lines import."""
        found = [each for each in self.nodes if isinstance(each, Import)]
        return len({line for each in found for line in _lines_of(each)})

    def _docstrings(self) -> Iterator[ast.stmt]:
        for node in [self.tree, *self.nodes]:
            if isinstance(node, ast.Module | ast.ClassDef | Function) and _has_docstring(node):
                yield node.body[0]


@dataclass(frozen=True, kw_only=True)
class House:
    """All modules of the packages at one moment."""

    modules: Mapping[str, Module]
    importers: Mapping[str, set[str]] = field(init=False)
    by_name: Mapping[str, set[str]] = field(init=False)

    def __post_init__(self) -> None:
        """Draw who imports whom: by a statement, and by a name handed to import_module."""
        written: dict[str, set[str]] = defaultdict(set)
        called: dict[str, set[str]] = defaultdict(set)
        for module in self.modules.values():
            for name in self._imported(module):
                written[name].add(module.name)
            for name in self._imported_by_name(module):
                called[name].add(module.name)
        object.__setattr__(self, "importers", written)
        object.__setattr__(self, "by_name", called)

    def _imported(self, module: Module) -> Iterator[str]:
        for node in module.nodes:
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names if each.name in self.modules)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    inner = f"{node.module}.{each.name}"
                    if inner in self.modules or node.module in self.modules:
                        yield inner if inner in self.modules else node.module

    def _imported_by_name(self, module: Module) -> Iterator[str]:
        constants: dict[str, object] = {
            target.id: node.value.value
            for node in module.tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in module.nodes if "import_module" in module.text else ():
            if not (isinstance(node, ast.Call) and node.args and _called(node) == "import_module"):
                continue
            match node.args[0]:
                case ast.Constant(value=str(name)):
                    yield from {name}.intersection(self.modules)
                case ast.Name(id=name):
                    yield from {str(constants.get(name))}.intersection(self.modules)
                case ast.JoinedStr(values=[ast.Constant(value=str(start)), *_]):
                    yield from (each for each in self.modules if each.startswith(start))
                case _:
                    pass

    @property
    def lone(self) -> list[Module]:
        """Return the modules with one importer, smallest first."""
        found = [
            module
            for name, module in self.modules.items()
            if not module.is_package and len(self.importers.get(name, ())) == 1
        ]
        return sorted(found, key=lambda module: (module.code_lines, module.name))

    def circles(self, *, by_name: bool) -> set[str]:
        """Return the modules that import themselves by a way through others."""
        imports: dict[str, set[str]] = defaultdict(set)
        for drawn in (self.importers, self.by_name) if by_name else (self.importers,):
            for name, importers in drawn.items():
                for importer in importers - {name}:
                    imports[importer].add(name)
        return {name for name in imports if _reaches(imports, name)}

    def count(self) -> dict[str, float]:
        """Return every row of the table with its number."""
        modules = self.modules.values()
        code = sum(each.code_lines for each in modules)
        classes = defaultdict(set)
        fields = []
        callables = 0
        for module in modules:
            for node in module.nodes:
                if isinstance(node, ast.ClassDef):
                    fields.append(_fields(node))
                    if not node.name.startswith("_") and node.name not in ONE_A_FOLDER:
                        classes[node.name].add(module.name)
                elif isinstance(node, Function):
                    callables += sum("Callable" in ast.unparse(each) for each in _annotations(node))
        return {
            **{
                f"files of {package}": sum(each.name.split(".")[0] == package for each in modules)
                for package in PACKAGES
            },
            **{
                f"code lines of {package}": sum(
                    each.code_lines for each in modules if each.name.split(".")[0] == package
                )
                for package in PACKAGES
            },
            "modules with one importer": len(self.lone),
            f"modules with one importer, under {SMALL_LINES} code lines": sum(
                each.code_lines < SMALL_LINES for each in self.lone
            ),
            "import lines, percent of code": round(
                100 * sum(each.import_lines for each in modules) / max(code, 1), 1
            ),
            "modules in a circle of imports": len(self.circles(by_name=False)),
            "modules in a circle that import_module closes": len(
                self.circles(by_name=True) - self.circles(by_name=False)
            ),
            "parameters that are a Callable": callables,
            f"classes with more than {MANY_FIELDS} fields": sum(
                each > MANY_FIELDS for each in fields
            ),
            "public class names that stand in two files or more": sum(
                len(each) > 1 for each in classes.values()
            ),
        }


def working_tree() -> House:
    """Return the modules that are in the working tree."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return house_of(
        (path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        for path in sorted(paths)
        if "__pycache__" not in path.parts
    )


def at_commit(commit: str) -> House:
    """Return the modules that a commit has."""
    done = subprocess.run(
        ["git", "archive", commit, "--", *PACKAGES], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        members = [each for each in archive if each.isfile() and each.name.endswith(".py")]
        texts = {Path(each.name): archive.extractfile(each) for each in members}
        return house_of((path, text.read().decode()) for path, text in texts.items() if text)


def house_of(texts: Iterable[tuple[Path, str]]) -> House:
    """Return the house of these files, by their paths from the root."""
    modules = {}
    for path, text in texts:
        is_package = path.name == "__init__.py"
        name = ".".join((path.parent if is_package else path.with_suffix("")).parts)
        tree = ast.parse(text, str(path))
        modules[name] = Module(name=name, path=path, is_package=is_package, text=text, tree=tree)
    return House(modules=modules)


def _has_docstring(node: ast.Module | ast.ClassDef | Function) -> bool:
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str())), *_]:
            return True
        case _:
            return False


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def _reaches(imports: Mapping[str, set[str]], start: str) -> bool:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in imports.get(waiting.pop(), ()):
            if name == start:
                return True
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return False


def _annotations(node: Function) -> list[ast.expr]:
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [each.annotation for each in named if each.annotation]


def _fields(node: ast.ClassDef) -> int:
    """Return how many values a class is made of: annotated ones, or what its __init__ takes."""
    written = [
        each
        for each in node.body
        if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation)
    ]
    made = [
        len([*each.args.args, *each.args.kwonlyargs]) - 1
        for each in node.body
        if isinstance(each, Function) and each.name == "__init__"
    ]
    return max([len(written), *made])


def table(*columns: Mapping[str, float]) -> str:
    """Return the counts as lines, side by side."""
    return "\n".join(
        f"{row:<55}" + "".join(f"{column[row]:>10g}" for column in columns) for row in columns[0]
    )


def main(arguments: list[str]) -> None:
    """Print the table, or the modules with one importer."""
    if arguments == ["--lone"]:
        house = working_tree()
        for module in house.lone:
            (importer,) = house.importers[module.name]
            print(f"{module.code_lines:>5} {module.name} <- {importer}")
        return
    houses = [at_commit(each) for each in arguments]
    if len(houses) < 2:
        houses.append(working_tree())
    print(table(*(each.count() for each in houses)))


if __name__ == "__main__":
    main(sys.argv[1:])
