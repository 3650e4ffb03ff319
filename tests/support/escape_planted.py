"""Attempts to act later: each leaves something in the workspace for a program of the owner's.

`before` is what the owner had there, `owner` what the owner does afterwards, outside; both run as
the daemon's user. What runs then breaks $CANARY/one, and so shows.
"""

from tests.support.escape_attempts import Attempt

_REPOSITORY = (
    "git init -q . && git config user.email a@example.org && git config user.name a"
    " && git commit -q --allow-empty -m begun\n"
)
_GIT = "git status >/dev/null; git commit -q --allow-empty -m later\n"
_PAYLOAD = "echo ': > \"$CANARY/one\"'"
_PYTHON_PAYLOAD = 'echo \'import os; open(os.environ["CANARY"] + "/one", "w")\''
_MONITOR = '\'sh -c ": > \\"$CANARY/one\\""\''
_CONFTEST = '/usr/bin/python3 -c \'import sys; sys.path[:0] = [".", "n"]; import conftest\''


def _hook(repository: str) -> str:
    """Return words that put a hook into a repository's folder."""
    hook = f"{repository}/hooks/post-commit"
    return (
        f"mkdir -p {repository}/hooks; (echo '#!/bin/sh'; {_PAYLOAD}) > {hook}; chmod +x {hook}\n"
    )


def _planted(name: str, script: str, *, owner: str, before: str = "") -> Attempt:
    return Attempt(f"planted-{name}", ("bash", "-c", script), before=before, owner=owner)


def _in_repository(name: str, script: str, *, owner: str = _GIT, before: str = "") -> Attempt:
    return _planted(name, script, owner=owner, before=_REPOSITORY + before)


_VENV = "/usr/bin/python3 -m venv --without-pip v\n"
_OWN_VENV = "/usr/bin/python3 -m venv --without-pip .venv\n"
_ACTIVATE = f"{_PAYLOAD} > .venv/bin/activate"
_NEW_REPOSITORY = "git init -q n; " + _hook("n/.git")
_IN_NEW = (
    "cd n && git -c user.email=a@example.org -c user.name=a commit -q --allow-empty -m x;"
    " git status\n"
)
_SETTINGS = f"git -C n config core.fsmonitor {_MONITOR}\n"

PLANTED = (
    _in_repository("hook", _hook(".git")),
    _in_repository("monitor", f"git config core.fsmonitor {_MONITOR}"),
    _in_repository(
        "settings-by-rename",
        f"cp .git/config c; git config -f c core.fsmonitor {_MONITOR}; mv c .git/config",
    ),
    _in_repository("path-of-hooks", "git config core.hooksPath h; mkdir x; " + _hook("x") +
                   "mv x/hooks h; cp -r h .git/h"),
    _in_repository("exchanged-repository", "cp -r .git x; " + _hook("x") +
                   "mv .git y; rm -rf .git; mv x .git"),
    _in_repository("common-folder", "cp -r .git x; " + _hook("x") + "echo ../x > .git/commondir"),
    _in_repository("hook-behind-a-link", "(echo '#!/bin/sh'; " + _PAYLOAD + ") > s/hook",
                   before="mkdir s; echo '#!/bin/sh' > s/hook; chmod +x s/hook;"
                   " ln -s ../../s/hook .git/hooks/post-commit"),
    _in_repository("folder-of-hooks", "(echo '#!/bin/sh'; " + _PAYLOAD + ") > h/post-commit;"
                   " chmod +x h/post-commit", before="mkdir h; git config core.hooksPath h"),
    _in_repository("module-named-as-a-cache", "m=.git/modules/node_modules; mkdir -p .git/modules;"
                   f" git init -q --bare $m; git -C $m config core.fsmonitor {_MONITOR};"
                   " git -C $m config core.bare false; mkdir n;"
                   " echo gitdir: ../$m > n/.git", owner=_IN_NEW),
    _in_repository("repository-among-caches", "git init -q node_modules/e; cd node_modules/e;"
                   " git -c user.email=a@example.org -c user.name=a commit -q --allow-empty -m x;"
                   f" h=$(git rev-parse HEAD); git config core.fsmonitor {_MONITOR}; cd ../..;"
                   " git update-index --add --cacheinfo 160000,$h,node_modules/e"),
    _planted("new-repository", _NEW_REPOSITORY, owner=_IN_NEW),
    _planted("new-settings", "git init -q n; " + _SETTINGS, owner=_IN_NEW),
    _planted("bare-repository", "git init -q --bare n; " + _SETTINGS +
             "git -C n config core.bare false; git -C n config core.worktree .", owner=_IN_NEW),
    _planted("moved-repository", "git init -q d/e/n; git -C d/e/n config core.fsmonitor " +
             _MONITOR + "; mv d/e/n n", owner=_IN_NEW),
    _planted("linked-repository", "git init -q e; git -C e config core.fsmonitor " + _MONITOR +
             "; mv e/.git e/g; mkdir n; ln -s ../e/g n/.git", owner=_IN_NEW),
    _planted("repository-by-file", "git init -q e; git -C e config core.fsmonitor " + _MONITOR +
             "; mv e/.git e/g; mkdir n; echo gitdir: ../e/g > n/.git", owner=_IN_NEW),
    _planted("closed-repository", "git init -q n; " + _SETTINGS + "chmod 111 n", owner=_IN_NEW),
    _planted("closed-parent", "git init -q d/n; " + _SETTINGS.replace("n ", "d/n ", 1) +
             "chmod 111 d", owner="cd d; " + _IN_NEW),
    _planted("closed-folder", f"mkdir n; {_PYTHON_PAYLOAD} > n/conftest.py; chmod 555 n",
             owner=_CONFTEST),
    _planted("long-name", f"mkdir n; {_PYTHON_PAYLOAD} > n/$(printf 'a%.0s' {{1..250}}).pth",
             owner="/usr/bin/python3 -c 'import site; site.addsitedir(\"n\")'"),
    _planted("conftest", f"{_PYTHON_PAYLOAD} > conftest.py", owner=_CONFTEST),
    _planted("old-conftest", f"{_PYTHON_PAYLOAD} > conftest.py", owner=_CONFTEST,
             before="echo > conftest.py"),
    _planted("conftest-by-rename", f"{_PYTHON_PAYLOAD} > c; mv -f c conftest.py", owner=_CONFTEST,
             before="echo > conftest.py"),
    _planted("conftest-in-a-new-folder", f"mv n m; mkdir n; {_PYTHON_PAYLOAD} > n/conftest.py",
             owner=_CONFTEST, before="mkdir n; echo > n/conftest.py"),
    _planted("conftest-by-second-name", f"{_PYTHON_PAYLOAD} > other.py", owner=_CONFTEST,
             before="echo > conftest.py; ln conftest.py other.py"),
    _planted("path-file", f"{_PYTHON_PAYLOAD} > $(echo v/lib/python3*/site-packages)/x.pth",
             owner="v/bin/python -c pass", before=_VENV),
    _planted("activate", f"{_PAYLOAD} >> v/bin/activate", owner=". v/bin/activate", before=_VENV),
    _planted("new-environment", f"{_VENV}{_PAYLOAD} >> v/bin/activate", owner=". v/bin/activate"),
    _planted("exchanged-environment", f"mv .venv v; mkdir -p .venv/bin; {_ACTIVATE}",
             owner=". .venv/bin/activate", before=_OWN_VENV),
    _planted("environment-by-rename", f"mv .venv v; mv t .venv; {_ACTIVATE}",
             owner=". .venv/bin/activate", before=_OWN_VENV + "mkdir -p t/bin"),
    _planted("environment-by-link", f"mv .venv v; ln -s t .venv; {_ACTIVATE}",
             owner=". .venv/bin/activate", before=_OWN_VENV + "mkdir -p t/bin"),
    _planted("profile", f"{_PAYLOAD} > .bashrc; {_PAYLOAD} > .profile",
             owner='HOME="$PWD" bash -lc true; HOME="$PWD" bash -ic true'),
    _planted("old-profile", f"{_PAYLOAD} >> .profile", owner='HOME="$PWD" bash -lc true',
             before="echo > .profile"),
    _planted("folder-settings", f"{_PAYLOAD} > .envrc", owner=". ./.envrc"),
    _planted("settings-behind-a-link", f"{_PAYLOAD} > e; ln -s e .envrc", owner=". ./.envrc"),
    _planted("settings-of-a-link", f"{_PAYLOAD} > e", owner=". ./.envrc",
             before="echo > e; ln -s e .envrc"),
    _planted("exchanged-link", f"{_PAYLOAD} > x; ln -sf x .envrc", owner=". ./.envrc",
             before="echo > e; ln -s e .envrc"),
    _planted("settings-in-capitals", f"{_PAYLOAD} > .EnvRC", owner=". ./.EnvRC"),
    _planted("husky", f"mkdir .husky; {_PAYLOAD} > .husky/pre-commit",
             owner="sh .husky/pre-commit"),
)  # fmt: skip
