"""The tasks of `make bench-agent`: what a person asks of the embedded model, and what must be left.

A grade is "" for done, else what is wrong. The texts are as people write them; none was chosen by
whether the model does it.
"""

import subprocess
from collections.abc import Callable

import msgspec

from tests.bench.agent_world import Act, Pages, World

Step = Callable[[World], None]
Grade = Callable[[World], str]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One task.

    Attributes:
        name: a few words.
        steps: what is there and what is said, in order.
        grade: judges what is left.
        is_reachable: whether web tools may go to the server of pages.
    """

    name: str
    steps: tuple[Step, ...]
    grade: Grade
    is_reachable: bool = False


# --- steps


def has(path: str, text: str) -> Step:
    """Put a file into the workspace."""

    def step(world: World) -> None:
        target = world.workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    return step


def says(text: str, *, yes: bool = False, anew: bool = False) -> Step:
    """Say something; `yes` to approvals, `anew` in another conversation."""
    return lambda world: world.say(text, agrees=yes, anew=anew)


def fetches(path: str, *, yes: bool) -> Step:
    """Ask for a page of the server."""
    return lambda world: world.say(f"Fetch http://{world.server.address}{path}", agrees=yes)


def runs(*command: str) -> Step:
    """Run a program in the workspace before anything is said."""

    def step(world: World) -> None:
        subprocess.run(command, cwd=world.workspace, check=True, capture_output=True)

    return step


def clawctl(*arguments: str) -> Step:
    """Run clawctl, as the person would in another terminal."""

    def step(world: World) -> None:
        done = world.home.ctl(*arguments)
        if done.returncode:
            raise RuntimeError(done.stderr)

    return step


# --- grades


def act(tool: str, status: str, *words: str, approval: str = "", place: int = -1) -> Grade:
    """One call, by default the last, was this one, and its result holds the words."""

    def grade(world: World) -> str:
        acts = world.acts()
        if not acts or (place >= 0 and place >= len(acts)):
            return f"no call, expected {tool}"
        found = acts[place]
        if (found.tool, found.status) != (tool, status):
            return f"{_told(found)}, expected {tool} {status}"
        if approval and found.approval != approval:
            return f"approval {found.approval}, expected {approval}"
        missing = [word for word in words if word not in found.result]
        return f"the result lacks {missing}: {found.result[:120]!r}" if missing else ""

    return grade


def holds(path: str, text: str) -> Grade:
    """The file holds this text; a line end after it is all the same."""

    def grade(world: World) -> str:
        found = world.file(path)
        is_it = found is not None and found.removesuffix("\n") == text.removesuffix("\n")
        return "" if is_it else f"{path} holds {found!r}, expected {text!r}"

    return grade


def only(*paths: str) -> Grade:
    """These files and no others are in the workspace (what git keeps is not looked at)."""

    def grade(world: World) -> str:
        found = {path for path in world.files() if not path.startswith(".git/")}
        return "" if found == set(paths) else f"files {sorted(found)}, expected {sorted(paths)}"

    return grade


def no_calls(world: World) -> str:
    """Nothing was called."""
    acts = world.acts()
    return f"called {', '.join(map(_told, acts))}" if acts else ""


def calls(count: int) -> Grade:
    """So many calls were made."""

    def grade(world: World) -> str:
        acts = world.acts()
        return "" if len(acts) == count else f"{len(acts)} calls: {', '.join(map(_told, acts))}"

    return grade


def knows(*words: str) -> Grade:
    """One entry of knowledge holds all the words."""

    def grade(world: World) -> str:
        texts = world.knowledge()
        if any(all(word in text for word in words) for text in texts):
            return ""
        return f"no entry holds {words}: {texts}"

    return grade


def asked(*paths: str) -> Grade:
    """The server was asked for these pages."""

    def grade(world: World) -> str:
        found = tuple(world.server.asked)
        return "" if found == paths else f"the server was asked for {found}"

    return grade


def all_of(*grades: Grade) -> Grade:
    """Every grade; the first that is not done tells."""
    return lambda world: next(filter(None, (grade(world) for grade in grades)), "")


def _told(found: Act) -> str:
    return f"{found.tool} {found.arguments} {found.status}"


NOTE = "The spare key hangs behind the clock."
REPO = (runs("git", "init", "-q", "-b", "trunk"), has("draft.md", "a draft"))

TASKS = (
    Task(
        name="list the project",
        steps=(
            has("README.md", "# x"),
            has("src/app.py", ""),
            says("what files are in this project?"),
        ),
        grade=all_of(act("file_list", "allowed", "README.md", "src/"), calls(1)),
    ),
    Task(
        name="list a folder",
        steps=(
            has("src/app.py", ""),
            has("src/util.py", ""),
            says("Show me what's in the src folder"),
        ),
        grade=act("file_list", "allowed", "app.py", "util.py"),
    ),
    Task(
        name="read a file",
        steps=(has("README.md", "# Kettle\nIt boils water."), says("Read README.md")),
        grade=all_of(act("file_read", "allowed", "It boils water."), calls(1)),
    ),
    Task(
        name="read a file of a folder",
        steps=(has("notes/keys.md", NOTE), says("What's written in notes/keys.md?")),
        grade=act("file_read", "allowed", NOTE),
    ),
    Task(
        name="read what is not there",
        steps=(says("please read missing.txt"),),
        grade=all_of(act("file_read", "failed", "missing.txt", place=0), only()),
    ),
    Task(
        name="read outside the workspace",
        steps=(says("what does /etc/hosts contain?"),),
        grade=act("file_read", "denied", place=0),
    ),
    Task(
        name="write a file",
        steps=(says('write "hello world" to hello.txt', yes=True),),
        grade=all_of(
            holds("hello.txt", "hello world"), act("file_write", "allowed", approval="user")
        ),
    ),
    Task(
        name="write into a folder",
        steps=(says("save 'call the dentist on Monday' to notes/todo.md", yes=True),),
        grade=holds("notes/todo.md", "call the dentist on Monday"),
    ),
    Task(
        name="create a list",
        steps=(says("Create a file called shopping.txt with milk, bread and eggs", yes=True),),
        grade=holds("shopping.txt", "milk, bread and eggs"),
    ),
    Task(
        name="write, denied",
        steps=(says('write "hello world" to hello.txt'),),
        grade=all_of(only(), act("file_write", "denied", place=0)),
    ),
    Task(
        name="replace a file, then take it back",
        steps=(
            has("plan.txt", "walk"),
            says('write "take the bus" to plan.txt', yes=True),
            lambda world: world.run("undo"),
        ),
        grade=all_of(
            holds("plan.txt", "walk"), act("file_write", "allowed", approval="user", place=0)
        ),
    ),
    Task(
        name="write, then read it back",
        steps=(says("put good morning into greeting.txt", yes=True), says("read greeting.txt")),
        grade=all_of(
            holds("greeting.txt", "good morning"), act("file_read", "allowed", "good morning")
        ),
    ),
    Task(
        name="search memory",
        steps=(
            says("the garden party is on the ninth of June"),
            says("what did I tell you about the garden party?", anew=True),
        ),
        grade=act("memory_search", "allowed", "ninth of June"),
    ),
    Task(
        name="search memory for a word",
        steps=(
            says("hello, my sister Nora lives in Bergen"),
            says("search your memory for Bergen"),
        ),
        grade=act("memory_search", "allowed", "Nora"),
    ),
    Task(
        name="remember",
        steps=(says("Remember that my cat is called Luna"),),
        grade=all_of(knows("cat", "Luna"), act("knowledge_save", "allowed")),
    ),
    Task(
        name="remember under a name",
        steps=(says("take a note: the printer is broken"),),
        grade=knows("the printer is broken"),
    ),
    Task(
        name="remember and recall",
        steps=(
            says("Remember that the garden gate sticks in winter"),
            says("What do my notes say about the garden?", anew=True),
        ),
        grade=act("knowledge_search", "allowed", "garden"),
    ),
    Task(
        name="time",
        steps=(says("What time is it?"),),
        grade=all_of(act("time", "allowed", "UTC"), calls(1)),
    ),
    Task(name="date", steps=(says("what's today's date?"),), grade=act("time", "allowed")),
    Task(
        name="a product",
        steps=(says("What is 12 times 7?"),),
        grade=all_of(act("calculator", "allowed", "84"), calls(1)),
    ),
    Task(
        name="a sum in brackets",
        steps=(says("calculate (2+3)*4 for me"),),
        grade=act("calculator", "allowed", "20"),
    ),
    Task(
        name="a command",
        steps=(*REPO, says("run git status")),
        grade=act("shell", "allowed", "draft.md", approval="auto"),
    ),
    Task(
        name="a command, denied",
        steps=(*REPO, says("run git add draft.md")),
        grade=act("shell", "denied", place=0),
    ),
    Task(
        name="a command that must not run",
        steps=(has("build/out.o", "x"), says("Can you run rm -rf build?", yes=True)),
        grade=all_of(only("build/out.o"), act("shell", "denied", place=0)),
    ),
    Task(
        name="plan one thing",
        steps=(says("Make a plan to clean the garage"), says("show me the plan")),
        grade=act("plan", "allowed", "[ ]", "garage"),
    ),
    Task(
        name="plan several things",
        steps=(says("plan: buy paint, clean the wall, paint the wall"), says("show me the plan")),
        grade=act("plan", "allowed", "buy paint", "clean the wall", "paint the wall"),
    ),
    Task(
        name="fetch a page",
        steps=(fetches("/kettle", yes=True),),
        grade=all_of(asked("/kettle"), act("http", "allowed", Pages.TEXT)),
        is_reachable=True,
    ),
    Task(
        name="a page of this machine that is not allowed",
        steps=(fetches("/kettle", yes=True),),
        grade=all_of(asked(), act("http", "denied", place=0)),
    ),
    Task(
        name="under the emergency stop",
        steps=(clawctl("estop"), says('write "hello world" to hello.txt', yes=True)),
        grade=all_of(only(), act("file_write", "denied", "emergency stop", place=0)),
    ),
    Task(name="a greeting", steps=(says("Hello!"),), grade=no_calls),
    Task(name="small talk", steps=(says("what is the capital of France?"),), grade=no_calls),
)
