"""Sixty files and more that are no procedure; each problem with its line and key, in one pass."""

# ruff: noqa: E501 - a row is a line

from clawd.sop.load import MAX_FILE_BYTES, OnFailure, dotted, lines_of, load
from tests.sop.procedures import SCHEMAS
from tests.support.rows import each_row

HEAD = 'name = "check"\ndescription = "Looks."\n'  # two lines
STEP = '[[steps]]\nid = "one"\nkind = "shell"\ncommand = "df -h"\n'  # four lines: 3 to 6


def steps(*tables: str) -> str:
    return HEAD + "".join(f"[[steps]]\n{table}\n" for table in tables)


def shell(more: str) -> str:
    return HEAD + STEP + more


def tool(args: str, name: str = "file_write") -> str:
    return HEAD + STEP + f'[[steps]]\nid = "two"\nkind = "tool"\ntool = "{name}"\n{args}\n'


def agent(more: str) -> str:
    return HEAD + STEP + f'[[steps]]\nid = "two"\nkind = "agent"\n{more}\n'


BROKEN: dict[str, tuple[str, int, str, str]] = {
    # what: file, line, key, a part of the sentence
    "nothing": ("", 1, "name", "is missing"),
    "no TOML": ("name = \n", 1, "", "no TOML"),
    "an end in the middle": (HEAD + '[[steps]]\nid = "o', 4, "", "no TOML"),
    "a key twice": (HEAD + 'name = "b"\n', 3, "", "no TOML"),
    "no name": ('description = "x"\n' + STEP, 1, "name", "is missing"),
    "no description": ('name = "check"\n' + STEP, 1, "description", "is missing"),
    "an empty description": ('name = "check"\ndescription = " "\n' + STEP, 2, "description", "empty"),
    "another name": (HEAD.replace("check", "other") + STEP, 1, "name", "the folder is"),
    "a name in capitals": (HEAD.replace("check", "Check") + STEP, 1, "name", "lower-case"),
    "a name that leads out": (HEAD.replace("check", "../x") + STEP, 1, "name", "lower-case"),
    "a number for a name": ("name = 1\n" + STEP, 1, "name", "must be text"),
    "a hidden character": ('name = "check"\ndescription = "a\\u202eb"\n' + STEP, 2, "description", "hidden"),
    "an unknown key": ('owner = "me"\n' + HEAD + STEP, 1, "owner", "is not known"),
    "no steps": (HEAD, 1, "steps", "at least one"),
    "an empty list of steps": (HEAD + "steps = []\n", 3, "steps", "at least one"),
    "steps that are a text": (HEAD + 'steps = "a"\n', 3, "steps", "must be a list"),
    "a step that is a text": (HEAD + 'steps = ["a"]\n', 3, "steps[0]", "must be a table"),
    "too many steps": (HEAD + STEP * 101, 3, "steps", "at most 100"),
    "no id": (steps('kind = "shell"\ncommand = "ls"'), 3, "steps[0].id", "is missing"),
    "an id in capitals": (steps('id = "One"\nkind = "shell"\ncommand = "ls"'), 4, "steps[0].id", "no id"),
    "a reserved id": (steps('id = "inputs"\nkind = "shell"\ncommand = "ls"'), 4, "steps[0].id", "meaning"),
    "an id twice": (HEAD + STEP + STEP, 8, "steps[1].id", "another step"),
    "no kind": (steps('id = "one"'), 3, "steps[0].kind", "is missing"),
    "an unknown kind": (steps('id = "one"\nkind = "python"'), 5, "steps[0].kind", "none of"),
    "a key of another kind": (shell('prompt = "x"\n'), 7, "steps[0].prompt", "is not known"),
    "rights that it asks for": (shell('autonomy = "full"\n'), 7, "steps[0].autonomy", "is not known"),
    "no command": (steps('id = "one"\nkind = "shell"'), 3, "steps[0].command", "is missing"),
    "an empty command": (steps('id = "one"\nkind = "shell"\ncommand = ""'), 6, "steps[0].command", "empty"),
    "no prompt": (agent(""), 7, "steps[1].prompt", "is missing"),
    "a time below": (shell("timeout_s = 0\n"), 7, "steps[0].timeout_s", "0.1 to 86400"),
    "a time above": (shell("timeout_s = 1e9\n"), 7, "steps[0].timeout_s", "0.1 to 86400"),
    "a text for a time": (shell('timeout_s = "5"\n'), 7, "steps[0].timeout_s", "a number"),
    "a number for a switch": (shell("idempotent = 1\n"), 7, "steps[0].idempotent", "true or false"),
    "an unknown on_failure": (shell('on_failure = "ignore"\n'), 7, "steps[0].on_failure", "none of"),
    "retries without a number": (shell('on_failure = "retry"\n'), 7, "steps[0].on_failure", "none of"),
    "ten retries": (shell('on_failure = "retry(10)"\n'), 7, "steps[0].on_failure", "1 to 9"),
    "no retry": (shell('on_failure = "retry(0)"\n'), 7, "steps[0].on_failure", "1 to 9"),
    "then what": (shell('on_failure = "retry(2) then "\n'), 7, "steps[0].on_failure", "none of"),
    "goto nowhere": (shell('on_failure = "goto(two)"\n'), 7, "steps[0].on_failure", "no later step"),
    "goto itself": (shell('on_failure = "goto(one)"\n'), 7, "steps[0].on_failure", "no later step"),
    "no such compensation": (shell('compensation = "x"\n'), 7, "steps[0].compensation", "is no compensation"),
    "a compensation of nobody": (
        shell('[[compensations]]\nid = "undo"\nkind = "shell"\ncommand = "ls"\n'),
        8, "compensations[0].id", "no step names",
    ),
    "a compensation that compensates": (
        shell('compensation = "undo"\n[[compensations]]\nid = "undo"\nkind = "shell"\ncommand = "ls"\ncompensation = "undo"\n'),
        12, "compensations[0].compensation", "has none",
    ),
    "a compensation with the id of a step": (
        '[[compensations]]\nid = "one"\nkind = "shell"\ncommand = "ls"\n'.join((HEAD, STEP)),
        8, "steps[0].id", "another step",
    ),
    "no such tool": (tool('args = { path = "a" }', "file_burn"), 10, "steps[1].tool", "no tool"),
    "a tool that is a kind": (tool("", "shell"), 10, "steps[1].tool", "the kind shell"),
    "a tool that starts procedures": (tool("", "sop"), 10, "steps[1].tool", "the kind sub"),
    "an argument that is missing": (tool('args = { path = "a" }'), 11, "steps[1].args", "content of file_write is missing"),
    "no arguments": (tool(""), 7, "steps[1].args", "is missing"),
    "an unknown argument": (
        tool('[steps.args]\npath = "a"\ncontent = "b"\nmode = "0777"'), 14, "steps[1].args.mode", "is no argument",
    ),
    "a number for a text": (tool('[steps.args]\npath = 1\ncontent = "b"'), 12, "steps[1].args.path", "is no string"),
    "a text for a number": (tool('args = { path = "a", max_lines = "x" }', "file_read"), 11, "steps[1].args.max_lines", "is no integer"),
    "a number out of bounds": (tool('args = { path = "a", max_lines = 0 }', "file_read"), 11, "steps[1].args.max_lines", "under 1"),
    "a choice that is none": (tool('args = { action = "burn" }', "plan"), 11, "steps[1].args.action", "none of"),
    "a list of the wrong things": (
        tool('[steps.args]\naction = "add"\nitems = [\n "a",\n 2,\n]', "plan"), 13, "steps[1].args.items", "[1]: 2 is no string",
    ),
    "a template of the wrong type": (
        tool('args = { path = "a", max_lines = "{{ one.ok }}" }', "file_read"), 11, "steps[1].args.max_lines", "a whole number is wanted",
    ),
    "a text about a number": (
        tool('args = { path = "a", max_lines = "{{ one.exit_code }} lines" }', "file_read"), 11, "steps[1].args.max_lines", "a whole number is wanted",
    ),
    "an output for a number": (
        tool('args = { path = "a", max_lines_from = "one" }', "file_read"), 11, "steps[1].args.max_lines_from", "is text",
    ),
    "content of no step": (tool('args = { path = "a", content_from = "two" }'), 11, "steps[1].args.content_from", "no step before"),
    "content twice": (tool('args = { path = "a", content = "b", content_from = "one" }'), 11, "steps[1].args.content_from", "twice"),
    "a reference forward": (steps('id = "one"\nkind = "shell"\ncommand = "echo {{ two }}"', 'id = "two"\nkind = "shell"\ncommand = "ls"'), 6, "steps[0].command", "no step before"),
    "a reference to itself": (steps('id = "one"\nkind = "shell"\ncommand = "echo {{ one }}"'), 6, "steps[0].command", "no step before"),
    "an unknown field": (agent('prompt = "{{ one.stdout }}"'), 10, "steps[1].prompt", "a step has"),
    "an unknown input": (agent('prompt = "{{ inputs.topic }}"'), 10, "steps[1].prompt", "is no input"),
    "an unknown fact of a run": (agent('prompt = "{{ run.owner }}"'), 10, "steps[1].prompt", "a run has"),
    "an item without a list": (agent('prompt = "{{ item }}"'), 10, "steps[1].prompt", "foreach"),
    "an open template": (agent('prompt = "{{ one"'), 10, "steps[1].prompt", "not closed"),
    "an empty template": (agent('prompt = "{{ }}"'), 10, "steps[1].prompt", "is empty"),
    "no expression": (shell('when = "1 +"\n'), 7, "steps[0].when", "cannot be read"),
    "a call in an expression": (shell('when = "__import__(\'os\')"\n'), 7, "steps[0].when", "cannot be read"),
    "an open bracket": (shell('when = "(true"\n'), 7, "steps[0].when", ") is missing"),
    "an expression without end": (shell('when = "true and"\n'), 7, "steps[0].when", "it ends"),
    "a list of a number": (agent('foreach = "one.exit_code"\nprompt = "x"'), 10, "steps[1].foreach", "a list or lines"),
    "approvals in a list": (
        HEAD + STEP + '[[steps]]\nid = "two"\nkind = "approval"\nprompt = "Go?"\nforeach = "one"\n',
        11, "steps[1].foreach", "is done once",
    ),
    "a template in quotes": (agent('prompt = "x"') + '[[steps]]\nid = "three"\nkind = "shell"\ncommand = "echo \'{{ two }}\'"\n', 14, "steps[2].command", "within quotes"),
    "a template in a comment": (agent('prompt = "x"') + '[[steps]]\nid = "three"\nkind = "shell"\ncommand = "ls # {{ two }}"\n', 14, "steps[2].command", "may not have #"),
    "a template in a here-document": (agent('prompt = "x"') + '[[steps]]\nid = "three"\nkind = "shell"\ncommand = "cat <<E\\n{{ two }}\\nE"\n', 14, "steps[2].command", "may not have <<"),
    "a template in arithmetic": (agent('prompt = "x"') + '[[steps]]\nid = "three"\nkind = "shell"\ncommand = "echo $(({{ two }}))"\n', 14, "steps[2].command", "may not have (("),
    "a schema that is none": (agent('prompt = "x"\noutput_schema = { type = "text" }'), 11, "steps[1].output_schema", "none of"),
    "a schema that needs what it has not": (
        agent('prompt = "x"\noutput_schema = { type = "object", required = ["a"] }'), 11, "steps[1].output_schema", "no property",
    ),
    "tools that are no names": (agent('prompt = "x"\ntools = [1]'), 11, "steps[1].tools", "patterns"),
    "itself as a step": (steps('id = "one"\nkind = "sub"\nsop = "check"'), 6, "steps[0].sop", "step of itself"),
    "a procedure elsewhere": (steps('id = "one"\nkind = "sub"\nsop = "../other"'), 6, "steps[0].sop", "no name"),
    "a budget of nothing": (HEAD + "[budget]\nsteps = 0\n" + STEP, 4, "budget.steps", "1 to"),
    "an unknown budget": (HEAD + "[budget]\nmoney = 1\n" + STEP, 4, "budget.money", "is not known"),
    "an input of an unknown type": (HEAD + '[inputs]\na = { type = "date" }\n' + STEP, 4, "inputs.a.type", "none of"),
    "a default of another type": (HEAD + '[inputs]\na = { type = "integer", default = "x" }\n' + STEP, 4, "inputs.a.default", "a whole number"),
    "an input with a bad name": (HEAD + "[inputs]\nA = {}\n" + STEP, 4, "inputs.A", "no name"),
}  # fmt: skip

GOOD = (
    HEAD
    + """
[inputs]
days = { type = "integer", default = 7 }

[budget]
steps = 20
tokens = 5000

[[steps]]
id = "disk"
kind = "shell"
command = '''
df -h . |
  tail -n {{ inputs.days }}'''
on_failure = "retry(2) then continue"

[[steps]]
id = "sum"
kind = "agent"
when = "disk.ok and not (disk.output == '')"
prompt = "Say what is wrong: {{ disk }}"
output_schema = { type = "object", properties = { lines = { type = "integer" }, files = { type = "array" } } }
compensation = "undo"

[[steps]]
id = "read"
kind = "tool"
tool = "file_read"
args = { path = "{{ item }}", max_lines = "{{ sum.json.lines }}" }
foreach = "sum.json.files"
on_failure = "goto(ask)"

[[steps]]
id = "write"
kind = "tool"
tool = "file_write"
args = { path = "r.md", content_from = "sum" }

[[steps]]
id = "ask"
kind = "approval"
prompt = "Go on with {{ run.name }}?"

[[steps]]
id = "more"
kind = "sub"
sop = "other-one"
inputs = { text = "{{ read.items.0 }}" }

[[compensations]]
id = "undo"
kind = "shell"
command = "rm -f {{ sum.json.name }}"
"""
)


def test_there_are_sixty_and_more() -> None:
    assert len(BROKEN) >= 60


@each_row("what", BROKEN)
def test_what_is_wrong_is_reported_with_line_and_key(what: str) -> None:
    text, line, key, why = BROKEN[what]
    problems = load(text.encode(), "check", SCHEMAS.get).problems
    assert any((p.line, p.key) == (line, key) and why in p.text for p in problems), problems


def test_a_good_one_has_no_problem_and_says_what_it_says() -> None:
    found, problems = load(GOOD.encode(), "check", SCHEMAS.get)
    assert problems == ()
    assert [each.id for each in found.steps] == ["disk", "sum", "read", "write", "ask", "more"]
    assert found.steps[0].on_failure == OnFailure(retries=2, then="continue")
    assert found.steps[2].on_failure == OnFailure(then="goto", target="ask")
    assert (found.budget.steps, found.budget.tokens) == (20, 5000)
    assert found.compensations[0].id == "undo"


def test_all_problems_are_reported_in_one_pass_in_the_order_of_lines() -> None:
    text = (
        'name = "Other"\ndescription = ""\nextra = 1\n[[steps]]\nid = "A"\nkind = "shell"\n'
        'command = "echo {{ b }}"\ntimeout_s = -1\non_failure = "never"\n[[steps]]\nkind = "x"\n'
    )
    problems = load(text.encode(), "check", SCHEMAS.get).problems
    assert [(each.line, each.key) for each in problems] == [
        (1, "name"),
        (2, "description"),
        (3, "extra"),
        (5, "steps[0].id"),
        (7, "steps[0].command"),
        (8, "steps[0].timeout_s"),
        (9, "steps[0].on_failure"),
        (11, "steps[1].kind"),
    ]


def test_what_is_no_text_or_too_large_is_reported() -> None:
    assert "no TOML" in load(b"name = '\xff'", "a", SCHEMAS.get).problems[0].text
    assert load(b"\n\nname = '\xff'", "a", SCHEMAS.get).problems[0].line == 3
    large = GOOD.encode() + b"#" * MAX_FILE_BYTES
    assert "at most" in load(large, "check", SCHEMAS.get).problems[0].text


def test_lines_are_those_of_keys_and_tables() -> None:
    text = '# one\na = """\nb = 1\n"""\n["x y".z]\nc.d = [\n  1, # ]\n  2]\n[[s]]\n[s.t]\ne = 1\n[[s]]\ne = 2\n'
    found = {dotted(key): line for key, line in lines_of(text).items()}
    assert found == {
        "a": 2,
        "x y.z": 5,
        "x y.z.c": 6,
        "x y.z.c.d": 6,
        "s": 9,
        "s[0]": 9,
        "s[0].t": 10,
        "s[0].t.e": 11,
        "s[1]": 12,
        "s[1].e": 13,
    }


@each_row("piece", ["[", "{", '"', "'", "a.", "[[", "=", "\\", '"""', "'''", "#", "{{", "("])
def test_a_file_of_one_thing_is_read_at_once(piece: str) -> None:
    load((HEAD + "a = " + piece * 60_000).encode()[:MAX_FILE_BYTES], "check", SCHEMAS.get)
    shell_step = STEP.replace("df -h", f"df {piece.replace(chr(34), chr(39)) * 9000}")
    load((HEAD + shell_step).encode(), "check", SCHEMAS.get)  # or it runs into the time limit
