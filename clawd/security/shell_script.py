"""A shell command line taken apart with a real grammar (tree-sitter-bash).

The tree is flattened: every command wherever it stands (pipelines, lists, substitutions,
here-documents, function bodies), every redirection, every function, and whether all of the
source is of the plain kind that can be judged for certain.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec
import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from clawd.security.shell_plain import NotPlainError, plain_commands
from clawd.security.shell_words import Word, expand

MAX_NODES = 20_000
# The parser's time grows with the square of what it cannot make sense of: `>` 65,536 times took
# two minutes. With these limits the worst that was found takes about a second.
MAX_PARSED_BYTES = 6_000
MAX_PIPES = 300

_LANGUAGE = Language(tree_sitter_bash.language())

# What may stand in a line that is not high by its form alone. Loops, tests, functions,
# here-documents, arithmetic and arrays are left out on purpose.
_PLAIN = frozenset({
    "program", "list", "pipeline", "redirected_statement", "command", "command_name", "word",
    "number", "raw_string", "ansi_c_string", "string", "string_content",
    "concatenation", "file_redirect", "file_descriptor", "comment", "negated_command", "subshell",
    "simple_expansion", "expansion", "variable_name", "special_variable_name",
    "command_substitution", "variable_assignment",
})  # fmt: skip
_WORDS = frozenset({
    "word", "number", "raw_string", "ansi_c_string", "string", "translated_string",
    "concatenation", "simple_expansion", "expansion", "command_substitution",
    "process_substitution", "arithmetic_expansion", "brace_expression", "regex",
    "extglob_pattern", "test_operator",
})  # fmt: skip
# What may stand as well where the full sandbox holds what runs.
_COMPOUND = frozenset({
    "for_statement", "while_statement", "do_group", "if_statement", "elif_clause", "else_clause",
    "compound_statement", "test_command", "binary_expression", "unary_expression",
    "parenthesized_expression", "postfix_expression", "ternary_expression", "test_operator",
    "heredoc_redirect", "herestring_redirect", "arithmetic_expansion", "variable_assignments",
    "declaration_command", "regex", "extglob_pattern", "brace_expression", "process_substitution",
})  # fmt: skip
_FORMS = {
    "function_definition": "defines a function",
    "heredoc_redirect": "holds a here-document",
    "herestring_redirect": "holds a here-string",
    "process_substitution": "holds a process substitution",
    "for_statement": "is a loop",
    "c_style_for_statement": "is a loop",
    "while_statement": "is a loop",
    "declaration_command": "sets variables",
    "variable_assignments": "sets variables",
    "arithmetic_expansion": "computes in the shell",
    "compound_statement": "groups commands",
    "test_command": "is a test",
    "if_statement": "is a condition",
    "case_statement": "is a condition",
}
_REPORTED = frozenset({"ERROR", "heredoc_start", "heredoc_body", "heredoc_content", "heredoc_end"})
_PLAIN_EXPANSION = re.compile(r"\$\{[A-Za-z0-9_]+\}")
# The grammar's scanner looks characters up in a table of 256 and crashes the process on others
# (tree-sitter-bash 0.25.1: a dozen CJK characters and a brace). To bash a byte above 127 is an
# ordinary part of a word, as a letter is; texts are read from the source itself.
_ASCII_ONLY = bytes(range(128)) + b"x" * 128
_HERE_DOCUMENT = re.compile(
    rb"""[^'"`$\\#(){}\[\]<]*<<[ \t]*(?P<quote>['"]?)(?P<word>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)"""
    rb"""[^'"`$\\#(){}\[\]<\n]*\n(?P<body>.*?)^(?P=word)$""",
    re.DOTALL | re.MULTILINE,
)
_BETWEEN = frozenset(" \t\n")


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """A redirection to or from a file or descriptor: its operator (`>>`) and target."""

    operator: str
    target: Word


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its words (the name first), where it stands, what it is given.

    Attributes:
        words: name and arguments after quote removal and brace expansion; never empty.
        assignments: names of the variables set for this command only.
        start: byte offset of its first byte in the source, `end` of the byte after it.
    """

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...]
    start: int
    end: int


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """A `for`: the variable, and the words that it goes through."""

    name: str
    values: tuple[Word, ...]


class ShellScript(msgspec.Struct, frozen=True, kw_only=True):
    """A command line in parts, in source order.

    Attributes:
        oddities: why it is not of the plain kind; empty when all of it is.
        unsure: why it cannot be judged even as built of loops, conditions and the like.
        assignments: variables that it sets for what follows.
        loops: its `for`s.
        inputs: texts of here-documents and here-strings: what a shell would run.
        bombs: names of functions that call themselves in a pipeline or the background.
        is_too_big: it has more parts than anybody would write; the rest is not listed.
    """

    commands: tuple[SimpleCommand, ...]
    redirects: tuple[Redirect, ...]
    oddities: tuple[str, ...]
    inputs: tuple[str, ...]
    functions: tuple[str, ...]
    bombs: tuple[str, ...]
    unsure: tuple[str, ...] = ()
    assignments: tuple[tuple[str, Word], ...] = ()
    loops: tuple[Loop, ...] = ()
    is_too_big: bool = False


def parse(
    source: bytes, variables: Mapping[str, str], bound: Mapping[str, str] | None = None
) -> ShellScript:
    """Take a command line apart; never fails, what makes no sense becomes an oddity.

    Args:
        source: the line.
        variables: values that are known for certain.
        bound: values of loop variables; no command is named by them.
    """
    values = _Values(variables, bound or {})
    whole, body = source, ""
    if len(source) > MAX_PARSED_BYTES:
        source, body = _without_here_document(source)
    if len(source) > MAX_PARSED_BYTES or source.count(b"|") > MAX_PIPES:
        return ShellScript(
            commands=(),
            redirects=(),
            oddities=(),
            inputs=(),
            functions=(),
            bombs=(),
            is_too_big=True,
        )
    root = Parser(_LANGUAGE).parse(source.translate(_ASCII_ONLY)).root_node
    flattener = _Flattener(source, values)
    for node, parent in _walk(root):
        if flattener.count > MAX_NODES:
            break
        flattener.visit(node, parent)
    if root.has_error:
        flattener.oddity("is not a command line that the shell's grammar knows")
    script = flattener.script()
    if body:
        script = msgspec.structs.replace(script, inputs=(*script.inputs, body))
    if not script.oddities and not _reads_the_same(script, whole, values):
        script = msgspec.structs.replace(script, oddities=("can be read in two ways",))
    is_sure = not script.oddities or (
        not script.unsure and _reads_the_same(script, whole, values, compound=True)
    )
    if is_sure or script.unsure:
        return script
    return msgspec.structs.replace(script, unsure=("can be read in two ways",))


def _without_here_document(source: bytes) -> tuple[bytes, str]:
    """Return a long command without the body of its first here-document, and the body.

    Only where nothing before could make it anything else, and nothing in it is expanded.
    """
    found = _HERE_DOCUMENT.match(source)
    if found is None:
        return source, ""
    is_literal = bool(found["quote"]) or not set(b"$`\\") & set(found["body"])
    if not is_literal:
        return source, ""
    start, end = found.span("body")
    return source[:start] + source[end:], found["body"].decode("utf-8", "replace")


class _Values(dict[str, str]):
    """What variables hold: in a command's name only those that are known for certain."""

    def __init__(self, known: Mapping[str, str], bound: Mapping[str, str]) -> None:
        super().__init__({**bound, **known})
        self.in_names = known


def _reads_the_same(
    script: ShellScript, source: bytes, values: _Values, *, compound: bool = False
) -> bool:
    """Return whether the second reader finds the same commands as the grammar."""
    try:
        commands = plain_commands(source.decode("utf-8", "replace"), compound=compound)
    except NotPlainError:
        return False
    expanded = [
        (
            *expand(words[0], values.in_names),
            *(each for raw in words[1:] for each in expand(raw, values)),
        )
        for words in commands
    ]
    return expanded == [command.words for command in script.commands]


def _walk(root: Node) -> Iterator[tuple[Node, str]]:
    """Yield the nodes in source order, each with the type of its parent.

    Without recursion, because hostile input nests deeply, and without `Node.parent`, which
    searches from the root.
    """
    waiting = [(root, "")]
    while waiting:
        node, parent = waiting.pop()
        yield node, parent
        waiting.extend((child, node.type) for child in reversed(node.children))


class _Flattener:
    """Collects what `ShellScript` holds while the tree is walked."""

    def __init__(self, source: bytes, values: _Values) -> None:
        self._source = source
        self._values = values
        self._covered = 0
        self._unsure: dict[str, None] = {}
        self._settings: list[tuple[str, Word]] = []
        self._loops: list[Loop] = []
        self._commands: list[SimpleCommand] = []
        self._redirects: list[Redirect] = []
        self._oddities: dict[str, None] = {}
        self._inputs: list[str] = []
        self._functions: list[str] = []
        self._bombs: list[str] = []
        self.count = 0

    def script(self) -> ShellScript:
        self._gap(len(self._source))
        return ShellScript(
            commands=tuple(self._commands),
            redirects=tuple(self._redirects),
            oddities=tuple(self._oddities),
            unsure=tuple(self._unsure),
            assignments=tuple(self._settings),
            loops=tuple(self._loops),
            inputs=tuple(self._inputs),
            functions=tuple(self._functions),
            bombs=tuple(self._bombs),
            is_too_big=self.count > MAX_NODES,
        )

    def oddity(self, what: str, *, is_compound: bool = False) -> None:
        """Note why the source is not plain; unless it is compound, it cannot be judged at all."""
        self._oddities[what] = None
        if not is_compound:
            self._unsure[what] = None

    def visit(self, node: Node, parent: str) -> None:
        self.count += 1
        self._form(node, parent)
        match node.type:
            case "command":
                self._command(node)
            case "command_name" if parent != "command":
                self._stray_name(node)
            case "for_statement":
                self._loop(node)
            case "file_redirect":
                self._redirect(node)
            case "heredoc_body":
                self._inputs.append(self._text(node))
            case "herestring_redirect":
                for child in node.named_children:
                    self._inputs += [word.text for word in self._words(child)]
            case "function_definition":
                self._function(node)
            case _:
                pass

    def _form(self, node: Node, parent: str) -> None:
        """Notice what is not plain about a node, and that its text is accounted for."""
        if node.is_named and node.type not in _PLAIN and node.type not in _REPORTED:
            writes = node.type == "process_substitution" and self._text(node).startswith(">")
            self.oddity(
                _FORMS.get(node.type, f"holds a {node.type.replace('_', ' ')}"),
                is_compound=node.type in _COMPOUND and not writes,
            )
        if node.type == "variable_assignment" and parent != "command":
            self.oddity("sets variables", is_compound=True)
            self._settings.append(self._assignment(node))
        if node.type == "expansion" and not _PLAIN_EXPANSION.fullmatch(self._text(node)):
            self.oddity("changes the value of a variable as it expands it", is_compound=True)
        if not node.children:
            self._gap(node.start_byte)
            self._covered = max(self._covered, node.end_byte)

    def _command(self, node: Node) -> None:
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        for child in node.children:
            if child.type == "command_name":
                words += expand(self._text(child), self._values.in_names)
            elif child.type == "variable_assignment":
                assignments.append(self._assignment(child))
            elif child.type in _WORDS:
                words += self._words(child)
            elif child.type not in {"file_redirect", "herestring_redirect", "heredoc_redirect"}:
                self.oddity(f"holds {self._text(child)[:20]!r} where a word is expected")
                words.append(Word(text="", is_static=False))
        if words:
            self._commands.append(
                SimpleCommand(
                    words=tuple(words),
                    assignments=tuple(assignments),
                    start=node.start_byte,
                    end=node.end_byte,
                )
            )

    def _stray_name(self, node: Node) -> None:
        """Take a name that the grammar could not build a command around: `{rm,-rf,x}`."""
        words = tuple(expand(self._text(node), self._values.in_names))
        self._commands.append(
            SimpleCommand(words=words, assignments=(), start=node.start_byte, end=node.end_byte)
        )

    def _loop(self, node: Node) -> None:
        name = node.child_by_field_name("variable")
        values = [w for child in node.children_by_field_name("value") for w in self._words(child)]
        if name is not None:
            self._loops.append(Loop(name=self._text(name), values=tuple(values)))

    def _assignment(self, node: Node) -> tuple[str, Word]:
        name, _, value = self._text(node).partition("=")
        words = expand(value, self._values)
        return name, words[0] if len(words) == 1 else Word(text="", is_static=False)

    def _redirect(self, node: Node) -> None:
        operator = "".join(
            self._text(child)
            for child in node.children
            if not child.is_named or child.type == "ERROR"
        )
        for child in node.children_by_field_name("destination"):
            self._redirects += [Redirect(operator=operator, target=w) for w in self._words(child)]

    def _function(self, node: Node) -> None:
        name_node = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        if name_node is None or body is None:
            return
        name = self._text(name_node)
        self._functions.append(name)
        parts = [part for part, _ in islice(_walk(body), MAX_NODES)]
        calls = any(p.type == "command_name" and self._text(p) == name for p in parts)
        if calls and any(p.type in {"|", "|&", "&"} for p in parts):
            self._bombs.append(name)

    def _words(self, node: Node) -> list[Word]:
        return expand(self._text(node), self._values)

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _gap(self, until: int) -> None:
        """Notice source that no part of the tree accounts for."""
        between = self._source[self._covered : until].decode("utf-8", "replace")
        if between.strip() == "-" and self._commands:
            # The grammar loses a lone dash before a here-document (tree-sitter-bash 0.25.1).
            last = self._commands.pop()
            dash = Word(text="-")
            self._commands.append(msgspec.structs.replace(last, words=(*last.words, dash)))
            self.oddity("loses a dash before a here-document", is_compound=True)
        elif set(between.replace("\\\n", "")) - _BETWEEN:
            self.oddity("holds text that the grammar skipped")
