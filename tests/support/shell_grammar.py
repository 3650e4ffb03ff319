"""Makes shell commands at random, by a grammar of what reads, writes, runs and hides it.

Whatever writes leaves `RAN` or changes a file; whatever reads shows the text of a file. The same
seed makes the same commands.
"""

import random
from pathlib import Path

READERS = (
    "cat", "head", "tail", "wc", "sort", "uniq", "cut", "tr a b", "grep", "grep a", "find", "ls",
    "echo", "stat", "file", "du", "df", "diff", "date", "pwd", "which", "git status", "git log",
    "git diff", "git show", "git branch", "git", "find .", "grep -r", "sort -u", "diff -r", "wc -l",
)  # fmt: skip
ACTORS = (
    "touch RAN", "tee RAN", "mkdir RAN", "cp a.txt RAN", "mv a.txt RAN", "ln a.txt RAN", "./x.sh",
    "sh x.sh", "bash -c 'touch RAN'", "python3 -c 'open(\"RAN\",\"w\")'",
    "perl -e 'open(F,\">RAN\")'",
    "awk 'BEGIN{system(\"touch RAN\")}'", "sed -i s/a/b/ a.txt", "sed -n 'w RAN' a.txt",
    "xargs touch",
    "truncate -s0 a.txt", "install a.txt RAN", "eval touch RAN", ". ./x.sh", "source x.sh",
    "exec touch RAN", "trap 'touch RAN' EXIT", "alias ls=./x.sh", "hash -p ./x.sh cat", "cd ..",
    "cd /", "pushd ..", "cat() { touch RAN; }", "export PATH=.:$PATH", "printf x", "x=RAN",
    "rm a.txt",
    "mapfile x", "read x", "set -- RAN", "shopt -s extglob", "bash", "command", "env", "coproc cat",
)  # fmt: skip
OPTIONS = (
    "-o RAN", "-oRAN", "-uo RAN", "--output=RAN", "--outp RAN", "-T .", "--compress-program=./x.sh",
    "--compress-prog ./x.sh", "-S1b", "-exec touch RAN \\;", "-exec ./x.sh {} +",
    "-execdir ./x.sh \\;",
    "-delete", "-fprint RAN", "-fprintf RAN x", "-fls RAN", "-ok touch RAN \\;", "-s 2020-01-01",
    "-C",
    "-m a.txt", "--ext-diff", "--textconv", "-c alias.x='!touch RAN' x",
    "-c core.pager='touch RAN' log",
    "--paginate", "-p", "--exec-path=.", "-C sub", "branch new", "-D main", "-m new", "--stat",
    "-r",
    "-R", "-n", "-l", "--", "-", "--files0-from=list", "-f list", "-f a.txt", "--help",
    "-maxdepth 1",
    "-name '*.txt'", "-newer a.txt", "-printf '%p'", "-d: -f1", "-k1", "-t a", "-c 3", "-e a", "-v",
    "--color=always", "-L", "-a", "-i", "-z", "--line-format=x", "--unified=3", "--from-file=sub",
)  # fmt: skip
OPERANDS = (
    "a.txt", "b.txt", "sub", "sub/c.txt", "RAN", "x.sh", "*", "a*", "[a]*", "sub/*", "?.txt", "-o*",
    "$(touch RAN)", "`touch RAN`", "<(touch RAN)", ">(tee RAN)", "$x", "${x:=RAN}", "${x}",
    "$((1+1))",
    "$'a.txt'", "'a.txt'", '"a.txt"', "a\\.txt", "{a,b}.txt", "{-o,RAN}", "../outside/secret.txt",
    "OUTSIDE/secret.txt", "~/x", "$HOME", "$PWD/../outside/secret.txt", "$OLDPWD", "--", "#", "!",
    "+%s",
    "RAN=1", ".", "..", "/", "./a.txt", "sub/../b.txt", "sub/../../outside/secret.txt",
    "$(cat list)",
    "\"$(cat a.txt)\"", "@(a|b)", "list", "HEAD", "main", ":a.txt", "|", ">", "&", "\\", "'", '"',
    "(", "}",
)  # fmt: skip
REDIRECTS = (
    "> RAN", ">> a.txt", "2> RAN", "&> RAN", ">| RAN", "<> RAN", "< a.txt", "2>&1", ">&2",
    "<<< RAN",
    "<<E\nx\nE\n", ">/dev/null", "2>/dev/null", "1<>RAN", "{fd}>RAN", ">&RAN", "<&-", "< sub/c.txt",
    "< OUTSIDE/secret.txt", "> $x", ">&$x", "> >(tee RAN)",
)  # fmt: skip
JOINS = (" ; ", " | ", " && ", " || ", " & ", "\n", " |& ", ";", "|", " \\\n", " ")
FRAMES = (
    "{}", "{}", "{}", "( {} )", "{{ {}; }}", "! {}", "time {}", "env {}", "nice {}", "timeout 1 {}",
    "command {}", "echo $({})", "echo `{}`", "if {}; then ls; fi", "A=1 {}", "LC_ALL=C {}",
    "PATH=. {}",
    "xargs {}", "eval '{}'", "stdbuf -o0 {}", "setsid {}", "exec {}", "echo \"$({})\"", "{} # x",
    "find . -maxdepth 0 -exec {} \\;", "while {}; do break; done", "for i in 1; do {}; done",
    "\\{}",
    "'{}'", "$({})", "builtin {}", "sh -c '{}'", "cat <({})", "env -i {}", "ls | xargs -n1 {}",
)  # fmt: skip
_ODD = " \t\n;&|<>(){}[]$`'\"\\*?~#!=-@,./RAN\r\x0b\u00a0\u2028é"


class Grammar:
    """Makes commands; `outside` is a folder with `secret.txt`."""

    def __init__(self, seed: int, outside: Path) -> None:
        self._random = random.Random(seed)
        self._outside = str(outside)

    def command(self) -> str:
        """Return the next command."""
        pick = self._random
        parts = [self._framed() for _ in range(pick.choice((1, 1, 1, 2, 2, 3)))]
        text = parts[0]
        for part in parts[1:]:
            text += pick.choice(JOINS) + part
        if pick.random() < 0.25:
            text = self._mutated(text)
        return text.replace("OUTSIDE", self._outside)

    def _framed(self) -> str:
        pick = self._random
        text = self._simple()
        return pick.choice(FRAMES).format(text) if pick.random() < 0.4 else text

    def _simple(self) -> str:
        pick = self._random
        words = [pick.choice(READERS) if pick.random() < 0.85 else pick.choice(ACTORS)]
        words += [pick.choice(OPTIONS) for _ in range(pick.choice((0, 0, 1, 1, 2)))]
        words += [pick.choice(OPERANDS) for _ in range(pick.choice((0, 1, 1, 2, 3)))]
        words += [pick.choice(REDIRECTS)] if pick.random() < 0.15 else []
        if pick.random() < 0.1:
            pick.shuffle(words)
        return " ".join(words)

    def _mutated(self, text: str) -> str:
        pick = self._random
        for _ in range(pick.choice((1, 1, 2, 3))):
            at = pick.randrange(len(text) + 1)
            kind = pick.randrange(4)
            if kind == 0:
                text = text[:at] + pick.choice(_ODD) + text[at:]
            elif kind == 1:
                text = text[:at] + text[at + 1 :]
            elif kind == 2:
                text = text[:at] + text[at : at + 5] + text[at:]
            else:
                text = text[:at] + pick.choice(OPERANDS) + text[at:]
        return text
