"""Which files run later outside, by name alone, and which settings of a repository run nothing."""

from pathlib import Path

import pytest

from clawd.security.auto_exec_files import hooks_path, is_auto_exec, is_plain_git_config
from clawd.security.paths import acts_later
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
    assert is_auto_exec(tuple(path.split("/")))


# Of each program that runs a file by itself: ways in that were found, and their kin.
_KIN = """
.asdfrc .autoenv.zsh .bazeliskrc .byebugrc .config/autostart/x.desktop .config/direnv/direnvrc
.config/emacs/init.el .config/gdb/gdbinit .config/helix/config.toml .config/hypr/hyprland.conf
.config/lefthook.toml .config/mise.toml .config/mise/conf.d/a.toml .config/mise/config.toml
.config/nushell/config.nu .config/sway/config .config/tmux/tmux.conf .config/wezterm/wezterm.lua
.commitlintrc.js .devcontainer.json .devcontainer/devcontainer.json .dir-locals-2.el .direnvrc
.emacs.d/init.el .emacs.el .flake8 .gdbearlyinit .ghci .git-hooks/pre-push .gitpod.yml
.gradle/init.d/a.gradle .helix/languages.toml .hg/hgrc .hgrc .huskyrc.json .idx/dev.nix .iex.exs
.ipython/profile_default/startup/a.py .jj/repo/config.toml .jupyter/jupyter_server_config.py
.lefthook-local.yml .lefthook.toml .lefthook/pre-commit/a.sh .lein/profiles.clj .lintstagedrc
.lintstagedrc.mjs .local/bin/ls .local/share/applications/x.desktop
.local/share/dbus-1/services/a.service .local/share/systemd/user/a.service .luarc.json
.mise.local.toml .mise.toml .mise/config.toml .mise/tasks/a .mvn/extensions.xml .npmrc .nvim.lua
.ocamlinit .overcommit.yml .pam_environment .pdbrc .pdbrc.py .perldb .procmailrc .pryrc .psqlrc
.pylintrc .rprofile .sbclrc .sqliterc .ssh/authorized_keys .ssh/config .ssh/rc .vim/plugin/a.vim
.vscode/mcp.json .wezterm.lua .xbindkeysrc .yarnrc.yml .zed/tasks.json LEFTHOOK.YAML
a/b/.ssh/rc app.code-workspace captainhook.json commitlint.config.js direnvrc
lefthook-local.yaml lefthook.json lefthook.jsonc lefthook.toml lefthook.yaml lefthook.yml
lint-staged.config.cjs mise.ci.local.toml mise.local.toml mise/config.toml prek.toml
simple-git-hooks.json
.claude/settings.json .claude/settings.local.json .claude/hooks/a.sh .claude.json .codex/config.toml
.continue/config.yaml .crush.json .cursor/hooks.json .cursor/mcp.json .gemini/settings.json
.kiro/settings/mcp.json .mcp.json .opencode/plugin/a.ts .qwen/settings.json .roo/mcp.json
.windsurf/hooks.json .aider.conf.yml crush.json opencode.json opencode.jsonc
"""

# Of linters, formatters and package managers: settings that can name code.
_CHECKERS = """
.ansible-lint .bsp/sbt.json .bundle/config .credo.exs .cspell.config.cjs .erb-lint.yml .eslintrc
.eslintrc.cjs .eslintrc.js .eslintrc.json .eslintrc.yml .flake8 .formatter.exs .golangci.toml
.golangci.yml .haml-lint.yml .lazy.lua .markdownlint-cli2.jsonc .markdownlint.cjs .mypy.ini
.oxlintrc.json .phan/config.php .php-cs-fixer.dist.php .php-cs-fixer.php .php_cs.dist .phpcs.xml
.pnpmfile.mjs .prettierrc .prettierrc.js .prettierrc.json5 .prettierrc.mjs .prettierrc.toml
.pylintrc.toml .remarkrc.mjs .ropeproject/config.py .rubocop.yml .scalafix.conf .solargraph.yml
.sqlfluff .standard.yml .stylelintrc .stylelintrc.cjs .stylelintrc.yaml .textlintrc.json
.tflint.hcl .treefmt.toml .trunk/trunk.yaml .ycm_extra_conf.py .yarn/plugins/a.cjs
.yarn/releases/yarn-4.cjs Directory/.ESLINTRC.JSON ansible.cfg app.sublime-project bunfig.toml
cspell.config.mjs eslint.config.cjs eslint.config.js eslint.config.mjs eslint.config.mts
eslint.config.ts gradle/wrapper/gradle-wrapper.properties hie.yaml mypy.ini omnisharp.json
packages/a/eslint.config.js phpcs.xml.dist phpstan.neon phpstan.neon.dist prettier.config.js
prettier.config.ts psalm.xml psalm.xml.dist pylintrc remark.config.js rust-toolchain.toml
stylelint.config.mjs treefmt.toml xo.config.js
"""

# What an editor evaluates although it builds or tests: asked about after untrusted text only.
_EVALUATED = """
.mocharc .mocharc.cjs Directory.Build.props Directory.Build.targets build.gradle build.gradle.kts
build.rs build.sbt jest.config.ts mix.exs packages/a/vite.config.mts playwright.config.ts
settings.gradle settings.gradle.kts svelte.config.js tailwind.config.cjs vite.config.js
vitest.config.ts vitest.workspace.json
"""

# What somebody starts to build or test: work like any other.
_STARTED = """
.babelrc .coveragerc .editorconfig .eslintignore .prettierignore .ruff.toml Gruntfile.js Justfile
Makefile Rakefile Taskfile.yml babel.config.js biome.json build.py eslint.js gulpfile.js
karma.conf.js noxfile.py package.json pom.xml prettier.js pyproject.toml pytest.ini
rollup.config.mjs rspec.rb ruff.toml setup.cfg setup.py src/build.rs.md tox.ini tsconfig.json
vite.js webpack.config.js wrapper/gradle-wrapper.properties yarn/releases/a.cjs
"""


def _beyond(paths: str, *, run_later: bool, ask_after_untrusted_text: bool) -> list[str]:
    """Return which paths are not judged so."""
    expected = (run_later, ask_after_untrusted_text)
    return [
        path
        for path in paths.split()
        if (is_auto_exec(Path(path).parts), acts_later(Path(path))) != expected
    ]


def test_s10_settings_of_checkers_are_guarded_and_those_of_builds_asked_about_or_left_alone() -> (
    None
):
    assert _beyond(_CHECKERS, run_later=True, ask_after_untrusted_text=True) == []
    assert _beyond(_EVALUATED, run_later=False, ask_after_untrusted_text=True) == []
    assert _beyond(_STARTED, run_later=False, ask_after_untrusted_text=False) == []


def test_s10_what_editors_shells_tools_and_agents_run_by_themselves_runs_later() -> None:
    assert [path for path in _KIN.split() if not is_auto_exec(tuple(path.split("/")))] == []
    # What obeys rather than runs asks in a tainted conversation as well.
    obeyed = ".clinerules .github/copilot-instructions.md .rules .windsurfrules CRUSH.md CLAUDE.md"
    kin = [*_KIN.split(), *obeyed.split(), "a/AGENTS.md", ".agents/skills/a/SKILL.md"]
    assert [path for path in kin if not acts_later(Path(path))] == []


def test_s10_the_programs_of_the_user_run_later_where_the_workspace_is_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    parts = ("bin", "ls")
    assert is_auto_exec(parts, workspace=tmp_path)
    assert is_auto_exec((tmp_path.name, "bin"), workspace=tmp_path.parent)
    assert not is_auto_exec(parts, workspace=tmp_path / "project")
    assert not is_auto_exec(("ls",), workspace=tmp_path / "bin")
    assert not is_auto_exec(("project", "bin", "ls"), workspace=tmp_path)


@each_row(
    "path",
    [
        "main.py",
        "mise.toml.clawd-held",
        "lefthook.yaml.clawd-held",
        ".lintstagedrc.clawd-held",
        "misery.toml",
        "local/bin/ls",
        "share/applications/x.desktop",
        ".config/lint.toml",
        ".jj/repo/store/type",
        ".hg/store/data/a.i",
        "commitlint",
        "repo/config.toml",
        "opencode/opencode.md",
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
    assert not is_auto_exec(tuple(path.split("/")))


def test_the_workspace_itself_is_no_file() -> None:
    assert not is_auto_exec(())


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
