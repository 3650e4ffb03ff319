"""What shell commands are judged as where the full sandbox holds them: unasked, asked, refused."""

from pathlib import Path

from hypothesis import given, settings

from clawd.security.command import Wall, assess
from clawd.security.policy import DEFAULT_ALLOWED_COMMANDS, PolicySettings
from clawd.security.risk import Assessment
from tests.security.test_command import (
    DESTRUCTION,
    HOME,
    MEDIUM,
    NEVER_MEDIUM,
    SHELLISH,
    WORKSPACE,
)
from tests.support.rows import each_row

WALL = Wall(own=("/tmp", "/dev/shm"), shown=("/usr", "/bin", "/lib", "/proc"))

# Of what is never medium without the full sandbox: what only reads, once nothing can be written.
READS_ONLY = {
    "git log *", "sort *", "sort -*", "find . -name *.py", "env", "nohup ls", "x= ; ls",
    "ls | while read f; do cat $f; done", "cat <<EOF\nhi\nEOF",
}  # fmt: skip


def judged(command: str, **changes: object) -> Assessment:
    policy = PolicySettings(**changes)  # type: ignore[arg-type]
    return assess(command, policy, workspace=WORKSPACE, home=HOME, wall=WALL)


def level(command: str, **changes: object) -> str:
    assessment = judged(command, **changes)
    return "blocked" if assessment.blocked else assessment.risk


@each_row("command", MEDIUM)
def test_what_is_medium_without_the_wall_is_low_behind_it(command: str) -> None:
    found = judged(command)
    assert (found.risk, found.reason, found.blocked) == ("low", "only reads", "")
    assert {need.risk for need in found.needs} <= {"low"}


@each_row("command", DESTRUCTION)
def test_rm_is_blocked_in_every_spelling_behind_the_wall(command: str) -> None:
    assert judged(command).blocked.startswith("rm "), judged(command)


@each_row("command", [each for each in NEVER_MEDIUM if each not in READS_ONLY])
def test_what_writes_executes_or_hides_never_runs_unasked(command: str) -> None:
    assert level(command) in {"medium", "high", "blocked"}, judged(command)


@each_row(
    "command",
    [
        "ls > /tmp/x", "ls >> /tmp/a/b; cat /tmp/a/b", "ls /usr/bin", "cat /proc/cpuinfo",
        "cd /tmp && echo x > y", "cat /usr/share/dict/words | head", "cat /proc/self/status",
        "find /usr/include -name '*.h'", "diff a /tmp/a", "ls > /dev/shm/x",
    ],
)  # fmt: skip
def test_p2_what_exists_in_the_sandbox_only_is_judged_as_inside(command: str) -> None:
    assert level(command) == "low", judged(command)


@each_row(
    ("command", "expected"),
    [
        ("ls > /usr/x", "blocked"), ("echo x > /proc/sys/kernel/core_pattern", "blocked"),
        ("cp a /tmp/b", "medium"), ("cat /etc/passwd", "blocked"), ("cat /opt/x", "blocked"),
        ("cat /tmp/../etc/shadow", "blocked"), ("ls /root", "blocked"),
        ("ls /usr/../root", "blocked"),
        ("cd /tmp && cat ../root/x", "blocked"), ("cd /home/ada/w/a && cat ../../x", "blocked"),
        ("echo x > ../y", "blocked"), ("ls > /tmp/../home/ada/w/a", "medium"),
    ],
)  # fmt: skip
def test_paths_that_leave_the_sandbox_are_still_outside(command: str, expected: str) -> None:
    assert level(command) == expected, judged(command)


@each_row(
    "command",
    [
        "sed -n '1,20p' a", "sed '/a/,/b/!d' a", "sed -E 's#(a|b)#\\1#gI; 5q' a",
        "sed -n '$=' a",
        "sed -e 1d -e '/x/s/a/b/2p' a", "sed 'a\\\nw out' a",
        "sed '/x/{n;d}' a", "sed 'y/ab/cd/' a",
        "sed -n '\\,a,p' a", "sed ':a;N;$!ba;s/\\n/ /g' a", "sed --expression=s/a/b/ a",
        "awk '{print $1, $NF}' a", "awk 'NR==FNR {a[$1]=$2; next} $1 in a' x y",
        "awk -F, -v n=3 '$2 > n && $3 < 5' a",
        "awk 'BEGIN {FS=\":\"} {s += $3} END {print s/NR}' a",
        "awk '/a|b/ || $2 ~ /c|d/ {print \"x|y > z\"}' a", "gawk 'length > 80' a",
    ],
)  # fmt: skip
def test_a_script_that_only_reads_is_low(command: str) -> None:
    assert level(command) == "low", judged(command)


@each_row(
    "command",
    [
        "sed w a", "sed -n '/x/w out' a", "sed '1~2W out' a", "sed 's/a/b/w out' a",
        "sed 's/a/b/ge' a", "sed 1e a", "sed 'e ls' a", "sed -n '1,3{p;e ls\n}' a",
        "sed -f x.sed a", "sed --file=x.sed a", "sed 's/[/]/x/e;s/[/]/y/' a", "sed \"$x\" a",
        "sed -e p -e 'w out' a", "sed 's,a,b,;w out' a", "sed '\\xax w out' a",
        "sed -n -s -e 's/a/b/w o' a",
        "awk '{print > $1}' a", "awk '{print $1,\n$2 > \"x\"}' a",
        "awk '{printf \"a\" >> \"b\"}' a",
        "awk '{print|\"sh\"}' a", "awk '\"ls\" | getline x' a", "awk '{ system ( $1 ) }' a",
        "awk '/\"/ {system(\"x\")} /\"/' a", "awk '$0 ~ /[/] \"/ { print > \"x\" } /\"/' a",
        "awk 'BEGIN{x++ /system(\"x\")/ 1}' a", "awk '@include \"x\"' a", "awk -f x a", "awk -ix a",
        "awk -E x a", "awk \"$p\" a", "gawk -i inplace '{print}' a", "awk '{print |& \"x\"}' a",
        "awk --source 'BEGIN{}' a", "awk 'return /x\"/ { print > \"y\" }' a",
    ],
)  # fmt: skip
def test_a_script_that_may_write_or_run_does_not_run_unasked(command: str) -> None:
    assert level(command) in {"medium", "high"}, judged(command)


@each_row(
    ("command", "expected"),
    [
        ("for f in a -o; do sort $f; done", "high"),
        ("for c in ls rm; do xargs $c; done", "blocked"),
        ("for c in ls pwd; do $c; done", "high"),
        ("f=rm; $f x; for f in ls; do :; done", "high"),
        ("for f in /etc/passwd; do cat $f; done", "blocked"),
        ("for f in $(ls); do sort $f; done", "medium"),
        ("for f in a b; do ./x $f; done", "high"),
        ("if [ -f a > b ]; then ls; fi", "high"),
        ("[ a > b ]", "high"),
        ("[[ a > b ]] && ls", "low"),
        ("while true; do terraform x; done", "high"),
        ("case x in x) ls;; esac", "high"),
        ("read PATH < a; ls", "high"),
        ("printf -v PATH .; ls", "high"),
        ("export PATH=.; ls", "high"),
        ("export CI=1; ls", "low"),
        ("IFS=,; ls", "high"),
        ("BASH_ENV=x bash -c ls", "high"),
        ("cat <<E\n$(terraform x)\nE", "high"),
        ("cat <<'E'\n$(terraform x)\nE", "low"),
        ("cat <<'E'; terraform x\nls\nE", "high"),
        ("bash <<'E'\nterraform x\nE", "high"),
        ("echo ${x:-a} ${f%.py} $((1 + 2))", "low"),
        ("echo ${x:-$(terraform x)}", "high"),
        ("echo ${x@P}", "high"),
        ("{ ls; pwd; } | sort", "low"),
        ("ls & terraform x", "high"),
        ("bash --rcfile x -c ls", "high"),
        ("bash -ic ls", "high"),
        ("git -C ../x status", "blocked"),
        ("git -c alias.x='!ls' x", "high"),
        ("git -c user.name=a commit -m b", "medium"),
        ("uv run terraform x", "high"),
        ("npm exec -- eslint .", "medium"),
        ("npx cowsay@latest hi", "high"),
        ("./node_modules/.bin/tsc", "medium"),
        ("node_modules/../x/.bin/../tsc", "high"),
    ],
)  # fmt: skip
def test_what_is_built_of_commands_is_judged_by_its_parts(command: str, expected: str) -> None:
    assert level(command) == expected, judged(command)


@each_row(
    ("command", "opens"),
    [
        ("python3 -m venv .venv", ("environments",)),
        ("cd app && python -m venv .venv && .venv/bin/pip install -r r.txt", ("environments",)),
        ("source .venv/bin/activate && pip install -e .", ("environments",)),
        ("uv sync", ("environments",)),
        ("git clone --depth 1 https://example.org/x.git y", ("clones",)),
        ("git clone https://example.org/x && cd x && uv venv", ("clones", "environments")),
        (".venv/bin/pip install x && pytest", ()),
        (".venv/bin/pip install x; ./x", ()),
        (".venv/bin/pip install $(./x)", ()),
        ("python -c 'import os; os.system(\"pip install x\")'", ()),
        ("pip list", ()),
        ("python -m pytest", ()),
        ("cd app && git switch main && git pull --rebase", ("checkouts",)),
        ("git stash && git merge --no-ff other && git stash pop", ("checkouts",)),
        ("git fetch origin && git rebase origin/main", ("checkouts",)),
        ("git stash -u && git switch -qc x main", ("checkouts",)),
        ("git restore -- conftest.py", ("checkouts",)),
        ("git switch main && make", ()),
        ("git switch main && git commit -m x", ()),
        ("git pull --upload-pack=./x", ()),
        ("git merge -s ./x other", ()),
        ("git rebase -x ./x main", ()),
        ("git -c core.hooksPath=x switch main", ()),
        ("git switch $(./x)", ()),
        ("git apply fix.patch", ()),
        ("git am fix.patch", ()),
        ("git clone ./evil x", ()),
        ("git clone -c core.fsmonitor=./x https://example.org/x", ()),
        ("git clone --template=./t https://example.org/x", ()),
        ("git clone --config=core.pager=x https://example.org/x", ()),
        ("git clone $x https://example.org/x", ()),
        ("ls", ()),
    ],
)
def test_only_what_does_nothing_else_may_fill_an_environment_clone_or_check_out(
    command: str, opens: tuple[str, ...]
) -> None:
    found = judged(command)
    assert (found.opens, found.outward) == (opens, True if opens else None)


@each_row(
    ("command", "patterns"),
    [
        ("bash scripts/test.sh -v", ("bash scripts/test.sh *",)),
        ("sh -x a.sh", ("sh -x a.sh *",)),
        ("source env.sh", ("source env.sh *",)),
        ("cat x | bash", ()),
        ("bash -s x < a", ("bash -s x *",)),
        ("eval ls", ()),
        ("sudo make", ()),
        ("ssh host ls", ()),
        ("python -m pip install x", ("python -m pip install *",)),
        (".venv/bin/pip install x", ("pip install *",)),
    ],
)
def test_no_pattern_covers_what_runs_anything(command: str, patterns: tuple[str, ...]) -> None:
    assert judged(command).patterns == patterns, judged(command)


def test_the_owners_list_makes_a_command_medium_and_not_its_neighbours() -> None:
    allowed = (*DEFAULT_ALLOWED_COMMANDS, "terraform plan", "gcc")
    assert level("terraform plan -out x", allowed_commands=allowed) == "medium"
    assert level("terraform apply", allowed_commands=allowed) == "high"
    assert level("cd src && gcc a.c", allowed_commands=allowed) == "medium"
    assert level("./gcc a.c", allowed_commands=allowed) == "high"
    assert level("gcc a.c; terraform apply", allowed_commands=allowed) == "high"


def test_each_part_that_is_not_low_is_named_with_what_would_cover_it() -> None:
    found = judged("cd src && git commit -m x && ls | tee log > ../out.txt && terraform plan -v")
    assert [(need.risk, need.pattern) for need in found.needs] == [
        ("low", "cd *"),
        ("medium", "git commit *"),
        ("low", "ls *"),
        ("medium", "tee *"),
        ("high", "terraform *"),
        ("medium", "> /home/ada/w/out.txt"),
    ]
    assert found.reason == "`terraform` is not on the list of this project"
    assert found.allow_hint == "clawctl policy allow 'terraform *' --project"
    assert found.unlisted == ("terraform",)


def test_why_a_line_cannot_be_read_is_nothing_that_a_list_could_hold() -> None:
    found = judged("make al (exit status 2)")
    assert (found.risk, found.unlisted, found.patterns) == ("high", (), ())
    assert "where a word is expected" in found.reason


@settings(max_examples=300, deadline=None)
@given(SHELLISH)
def test_a_line_that_runs_something_unknown_after_anything_never_runs_unasked(before: str) -> None:
    if not before.endswith("\\"):
        assert level(f"{before}\nterraform x\n") in {"high", "blocked"} or "<<" in before


def test_the_workspace_may_lie_in_tmp() -> None:
    found = assess("echo x > a", PolicySettings(), workspace=Path("/tmp/w"), home=HOME, wall=WALL)
    assert found.risk == "medium"
