"""Which files run later outside, by name alone, and which settings of a repository run nothing."""

from clawd.security.run_later import hooks_path, is_plain_git_config, is_run_later
from tests.support.rows import each_row

_PLAIN = """\
[core]
\trepositoryformatversion = 0
\tbare = false
[remote "origin"]
\turl = https://example.org/a.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
"""


@each_row(
    "path",
    [
        ".git/hooks/post-commit",
        ".git/config",
        "deep/down/.git/modules/a/config",
        ".GIT/config",
        ".git",
        "conftest.py",
        "tests/unit/conftest.py",
        "Conftest.PY",
        "sitecustomize.py",
        "sitecustomize.pyc",
        "usercustomize.cpython-311-x86_64-linux-gnu.so",
        "conftest.pyc",
        "x/zero.pth",
        ".venv/bin/activate",
        "venv/pyvenv.cfg",
        "env/lib/python3.12/site-packages/a.py",
        ".bashrc",
        ".zshenv",
        ".envrc",
        ".vscode/tasks.json",
        "sub/.idea/workspace.xml",
        ".husky/pre-commit",
        ".pre-commit-config.yaml",
        ".config/fish/config.fish",
        ".config/systemd/user/a.service",
        ".cargo/config.toml",
    ],
)
def test_these_run_later(path: str) -> None:
    assert is_run_later(tuple(path.split("/")))


@each_row(
    "path",
    [
        "main.py",
        "Makefile",
        "package.json",
        "tests/test_conftest.py",
        "git/config",
        ".gitignore",
        "config",
        "docs/bashrc",
        ".config/app/settings.json",
        "bin/activate",
        ".github/workflows/ci.yml",
        "conftest.py.clawd-held",
        "sitecustomize.py.clawd-held",
        "sitecustomize.md",
    ],
)
def test_these_do_not(path: str) -> None:
    assert not is_run_later(tuple(path.split("/")))


def test_the_workspace_itself_is_no_file() -> None:
    assert not is_run_later(())


def test_what_init_and_clone_write_is_plain() -> None:
    assert is_plain_git_config(_PLAIN)
    assert is_plain_git_config("")


@each_row(
    "more",
    [
        "[core]\n\tfsmonitor = /tmp/x\n",
        "[core]\n\thooksPath = h\n",
        "[core]\n\tsshCommand = x\n",
        "[core]\n\tbare = false \\\n\n",
        "[alias]\n\tst = !x\n",
        '[filter "a"]\n\tclean = x\n',
        "[include]\n\tpath = ../x\n",
        '[includeIf "gitdir:/"]\n\tpath = x\n',
        '[remote "a"]\n\turl = ext::sh -c x\n',
        '[remote "a"]\n\tuploadpack = x\n',
        "[credential]\n\thelper = !x\n",
        "[core] fsmonitor = x\n",
        "[diff]\n\texternal = x\n",
        "; what is not known is not plain\n",
    ],
)
def test_anything_else_is_not(more: str) -> None:
    assert not is_plain_git_config(_PLAIN + more)


def test_the_last_path_of_hooks_counts() -> None:
    assert hooks_path('[core]\n\thooksPath = one\n\tHOOKSPATH = "two"\n') == "two"
    assert hooks_path(_PLAIN) == ""
