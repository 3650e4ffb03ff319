"""A hundred short tasks, with the core of tools in a request and with all of them.

Kinds: one tool, a choice among tools, arguments that matter, no tool at all, two steps. One daemon
for each model and offer, a conversation and an emptied workspace for each task, temperature 0. What
counts is what came of a task: what calls gave, what files hold, or the answer where that can be
checked. Which tool got it does not matter.

A model that was not trained to call tools calls none, whatever it is offered. So tasks are also
done held: the first answer must be a call (`tool_choice`), and which one is the model's choice.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from clawctl.client import Client, connect
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.wire.events import ApprovalRequested, PromptEvaluated, QuestionAsked, TurnFinished
from clawd.wire.receipts import ShowReceipt
from clawd.wire.turns import SendMessage
from tests.support.home import Home

Kind = Literal["one tool", "choice", "arguments", "no tool", "two steps"]
OFFERS: tuple[Literal["core", "all"], ...] = ("core", "all")
EMBEDDED = "embedded"
ROUNDS, ANSWER_TOKENS, BUDGET_S = 4, 64, 120.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a task.

    Attributes:
        answer: the text of the turn.
        results: what the calls that ran gave, oldest first.
        calls: the tools that were called, those that were refused or failed as well.
        files: of the workspace, by path.
        prompts: the tokens of each prompt.
    """

    answer: str = ""
    results: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    files: dict[str, str] = {}
    prompts: tuple[int, ...] = ()


Check = Callable[[Outcome], bool]


class QualityTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task: what lies in the workspace, what is said, and when it is done."""

    kind: Kind
    text: str
    files: dict[str, str] = {}
    is_done: Check


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What one model did with one offer.

    Attributes:
        done: the texts of the tasks that were done.
        prompt_tokens: of each prompt, in the middle.
    """

    model: str
    offer: str
    is_held: bool
    count: int
    done: tuple[str, ...]
    prompt_tokens: int


# --- checks


def found(*words: str) -> Check:
    """A call that ran gave all these words."""
    return lambda left: any(all(word in each for word in words) for each in left.results)


def told(*words: str) -> Check:
    """A call that ran gave these words, or the answer holds them."""

    def check(left: Outcome) -> bool:
        said = left.answer.replace(",", "")
        return found(*words)(left) or all(word.lower() in said.lower() for word in words)

    return check


def called(*tools: str) -> Check:
    """One of these tools was called and ran, with a result."""
    return lambda left: bool(left.results) and any(tool in left.calls for tool in tools)


def holds(path: str, text: str) -> Check:
    """The file holds this text; blanks around it are all the same."""
    return lambda left: left.files.get(path, "").strip() == text


def has(path: str, *words: str) -> Check:
    """The file is there and holds the words."""
    return lambda left: path in left.files and all(word in left.files[path] for word in words)


def plain(*words: str) -> Check:
    """Nothing was called, and the answer says something: one of the words, where there are any."""

    def check(left: Outcome) -> bool:
        said = left.answer.lower()
        return (
            not left.calls and bool(said.strip()) and (not words or any(w in said for w in words))
        )

    return check


# --- the tasks

NOTE = "The spare key hangs behind the blue clock."
BREAD = "flour 500 g\nwater 350 g\nsalt 10 g\nyeast 3 g\n"
CODE = "def area(w, h):\n    return w * h\n\n\ndef volume(w, h, d):\n    return w * h * d\n"
LOG = "10:01 started\n10:04 ERROR disk full\n10:09 stopped\n"
PAGES = {"src/app.py": CODE, "src/main.py": "from app import area\n", "README.md": "# Kettle\n"}


def _tasks(kind: Kind, *rows: tuple[str, dict[str, str], Check]) -> tuple[QualityTask, ...]:
    return tuple(
        QualityTask(kind=kind, text=text, files=files, is_done=check) for text, files, check in rows
    )


ONE_TOOL = _tasks(
    "one tool",
    ("Read notes.txt", {"notes.txt": NOTE}, found(NOTE)),
    ("What does notes.txt say?", {"notes.txt": NOTE}, found(NOTE)),
    ("Please show me the contents of bread.txt", {"bread.txt": BREAD}, found("yeast 3 g")),
    ("Open README.md and tell me what is in it", PAGES, found("# Kettle")),
    ("cat bread.txt", {"bread.txt": BREAD}, found("water 350 g")),
    ("Use file_read on notes.txt", {"notes.txt": NOTE}, found(NOTE)),
    ("I need to see log.txt", {"log.txt": LOG}, found("disk full")),
    ("print the file draft.md", {"draft.md": "# Draft\nhello"}, found("# Draft")),
    ("What files are in this folder?", PAGES, found("README.md")),
    ("List the files here", {"one.txt": "1", "two.txt": "2"}, found("one.txt", "two.txt")),
    ("Show me what is in the src folder", PAGES, found("app.py", "main.py")),
    ("Use file_list to list this folder", {"three.txt": "3"}, found("three.txt")),
    ("ls", {"four.txt": "4"}, found("four.txt")),
    ("Which files do I have?", {"five.txt": "5"}, found("five.txt")),
    ('Write "hello world" to hello.txt', {}, holds("hello.txt", "hello world")),
    ("Create a file named empty.md with the text: to do", {}, holds("empty.md", "to do")),
    ("Save 'call Ada on Monday' in todo.txt", {}, holds("todo.txt", "call Ada on Monday")),
    ("Put the word green into colour.txt", {}, holds("colour.txt", "green")),
    ("Use file_write to write ok to state.txt", {}, holds("state.txt", "ok")),
    ("Run the command: echo kettle", {}, found("kettle")),
    ("Run `wc -l bread.txt`", {"bread.txt": BREAD}, found("4")),
    ("Run `date` in the shell", {}, called("shell")),
    ("Use the shell tool to run: ls", {"six.txt": "6"}, found("six.txt")),
    ("Search all files for the word ERROR", {"log.txt": LOG}, found("disk full")),
    ("Use grep to find 'yeast' here", {"bread.txt": BREAD}, found("yeast 3 g")),
    ("Find all Python files", PAGES, found("app.py", "main.py")),
)
CHOICE = _tasks(
    "choice",
    ("What time is it?", {}, called("time", "shell")),
    ("What is today's date?", {}, called("time", "shell")),
    ("What day of the week is it? Look it up.", {}, called("time", "shell")),
    ("What is 12 times 7?", {}, told("84")),
    ("Calculate (2+3)*4", {}, told("20")),
    ("What is 1234 + 4321?", {}, told("5555")),
    ("Calculate 17 * 23", {}, told("391")),
    ("Use the calculator: 99 / 3", {}, told("33")),
    ("Remember that my cat is called Luna", {}, called("knowledge_save")),
    ("Take a note: the printer is broken", {}, called("knowledge_save", "file_write")),
    ("What do my notes say about the garden?", {}, called("knowledge_search", "memory_search")),
    ("Search your memory for Bergen", {}, called("memory_search", "knowledge_search")),
    ("Make a plan to clean the garage", {}, called("plan")),
    ("Plan these steps: buy paint, paint the wall", {}, called("plan")),
    ("Which tools do you have? Look them up.", {}, called("tool_lookup")),
    ("How is the calculator tool called? Look it up.", {}, called("tool_lookup")),
    ("Which functions are in src/app.py?", PAGES, found("def volume")),
    ("How many lines has bread.txt?", {"bread.txt": BREAD}, called("file_read", "shell", "grep")),
    (
        "Is there a file named missing.txt?",
        {"one.txt": "1"},
        called("file_list", "check_path", "glob", "shell", "file_read"),
    ),
    ("Where is the function volume defined?", PAGES, found("def volume")),
    (
        "Which folder are you working in? Check it.",
        {},
        called("cwd", "workspace", "shell", "file_list"),
    ),
    ("Show the current directory with the shell", {}, called("shell")),
)
ARGUMENTS = _tasks(
    "arguments",
    ("Read the file notes/2024/keys.md", {"notes/2024/keys.md": NOTE}, found(NOTE)),
    ("What is written in docs/a b.txt?", {"docs/a b.txt": NOTE}, found(NOTE)),
    ("Read only the first line of bread.txt", {"bread.txt": BREAD}, found("flour 500 g")),
    ("List the folder docs/old", {"docs/old/x.txt": "x"}, found("x.txt")),
    ("List everything below src, with subfolders", {"src/a/b/c.py": ""}, found("c.py")),
    ('Write "take the bus" to plans/monday.txt', {}, holds("plans/monday.txt", "take the bus")),
    ("Write the numbers 1, 2, 3 to numbers.txt", {}, has("numbers.txt", "1", "2", "3")),
    ('Create config.json with the content {"port": 8080}', {}, has("config.json", "8080")),
    ("Write an HTML file index.html with the heading Welcome", {}, has("index.html", "Welcome")),
    (
        "In bread.txt replace 'salt 10 g' by 'salt 12 g'",
        {"bread.txt": BREAD},
        has("bread.txt", "salt 12 g", "yeast 3 g"),
    ),
    (
        "Append the line 'butter 20 g' to bread.txt",
        {"bread.txt": BREAD},
        has("bread.txt", "yeast 3 g", "butter 20 g"),
    ),
    ("Rename one.txt to first.txt", {"one.txt": "1"}, holds("first.txt", "1")),
    ("Search for 'def ' in the src folder only", PAGES, found("def area")),
    ("Find files whose names end in .md", {"a.md": "", "b.txt": ""}, found("a.md")),
    ("Run `echo one two three` and show the output", {}, found("one two three")),
    ("Create an empty folder named backup", {}, called("fs_ops", "shell", "file_write")),
)
NO_TOOL = _tasks(
    "no tool",
    ("Hello!", {}, plain()),
    ("Good morning", {}, plain()),
    ("Thank you very much", {}, plain()),
    ("Who are you?", {}, plain()),
    ("What is the capital of France?", {}, plain("paris")),
    ("Which planet is the largest in the solar system?", {}, plain("jupiter")),
    ("What colour is the sky on a clear day?", {}, plain("blue")),
    ("How many days has a week?", {}, plain("seven", "7")),
    ("Say hi", {}, plain()),
    ("Tell me a joke", {}, plain()),
    ("What is the opposite of hot?", {}, plain("cold")),
    ("Write a haiku about rain", {}, plain()),
    ("Explain in one sentence what a hash is", {}, plain()),
    ("Name three fruits", {}, plain()),
    ("Is water wet?", {}, plain()),
    ("What language is spoken in Brazil?", {}, plain("portuguese")),
    ("Goodbye", {}, plain()),
    ("What does HTTP stand for?", {}, plain("hypertext")),
    ("How do you spell kettle?", {}, plain("kettle", "k-e-t")),
    ("Give me a word that rhymes with cat", {}, plain()),
)
TWO_STEPS = _tasks(
    "two steps",
    ("Read a.txt and write its text to b.txt", {"a.txt": NOTE}, holds("b.txt", NOTE)),
    ("Copy one.txt to two.txt", {"one.txt": "1"}, holds("two.txt", "1")),
    ("List the files and then read the first one", {"only.txt": NOTE}, found(NOTE)),
    ("Find the file with 'spare key' in it and read it", {"x/k.txt": NOTE}, found(NOTE)),
    ("Calculate 6*7 and write the result to answer.txt", {}, has("answer.txt", "42")),
    (
        "Count the lines of bread.txt and write the number to n.txt",
        {"bread.txt": BREAD},
        has("n.txt", "4"),
    ),
    (
        "Read log.txt and tell me the error",
        {"log.txt": LOG},
        lambda left: found("disk full")(left) and "disk" in left.answer.lower(),
    ),
    (
        "Write hi to hi.txt, then read it back",
        {},
        lambda left: holds("hi.txt", "hi")(left) and found("hi")(left),
    ),
    (
        "Look up how the plan tool is called, then plan to buy milk",
        {},
        lambda left: called("tool_lookup")(left) and "plan" in left.calls,
    ),
    (
        "Read bread.txt and tell me how much water it needs",
        {"bread.txt": BREAD},
        lambda left: found("350")(left) and "350" in left.answer,
    ),
    ("List src, then show me src/main.py", PAGES, found("from app import")),
    ("Create the folder out with a file done.txt that says yes", {}, holds("out/done.txt", "yes")),
    ("Ask the shell for the date and write it to today.txt", {}, has("today.txt", "20")),
    ("Find the Python files and read app.py", PAGES, found("def volume")),
    (
        "Write a and b into ab.txt, then list the files",
        {},
        lambda left: "ab.txt" in left.files and found("ab.txt")(left),
    ),
    ("Read README.md and save its title to title.txt", PAGES, has("title.txt", "Kettle")),
)
TASKS = (*ONE_TOOL, *CHOICE, *ARGUMENTS, *NO_TOOL, *TWO_STEPS)


# --- playing them


def score(
    folder: Path,
    model: str,
    offer: str,
    tasks: Sequence[QualityTask],
    say: Callable[[str], None],
    *,
    is_held: bool = False,
) -> Score:
    """Do the tasks on a model.

    Args:
        folder: for a home.
        model: path of a GGUF file, or EMBEDDED.
        offer: core or all.
        tasks: which.
        say: told of each that was not done.
        is_held: the tasks that want a tool, each with an answer that must be a call.
    """
    tasks = [task for task in tasks if task.kind != "no tool" or not is_held]
    name = model if model == EMBEDDED else "real"
    done, prompts = list[str](), list[int]()
    with _playing(folder / f"{name}-{offer}-{is_held:d}", model, offer) as (home, client):
        for task in tasks:
            left = play(home, client, task, is_held=is_held)
            prompts += left.prompts
            if task.is_done(left):
                done.append(task.text)
            else:
                say(f"{name} {offer}, {task.kind}: {task.text}: {_described(left)}")
    middle = sorted(prompts)[len(prompts) // 2] if prompts else 0
    return Score(
        model=name,
        offer=offer,
        is_held=is_held,
        count=len(tasks),
        done=tuple(done),
        prompt_tokens=middle,
    )


@contextmanager
def _playing(folder: Path, model: str, offer: str) -> Iterator[tuple[Home, Client]]:
    folder.mkdir(parents=True)
    home = Home(folder)
    home.configure(
        provider="asked",
        tables=f'[tools]\noffer = "{offer}"\n[agent]\nmax_tool_rounds = {ROUNDS}\n'
        f"wall_clock_budget_s = {BUDGET_S}\n"
        f'[providers.models.asked]\nkind = "local"\nmodel = "{model}"\n'
        f"[engine]\ntemperature = 0.0\nmax_tokens = {ANSWER_TOKENS}\n",
    )
    try:
        home.start()
        with connect(layout(home.environ).socket) as client:
            yield home, client
    finally:
        home.close()


def play(home: Home, client: Client, task: QualityTask, *, is_held: bool = False) -> Outcome:
    """Do one task in a conversation and a workspace of its own, and return what is left."""
    for path in home.workspace.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, text in task.files.items():
        target = home.workspace / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    before = len(home.receipt_lines())
    answer, prompts = _said(client, task.text, "required" if is_held else "auto")
    lines = home.receipt_lines()[before:]
    return Outcome(
        answer=answer,
        calls=tuple(line["tool"] for line in lines),
        results=tuple(
            client.call(ShowReceipt(receipt_id=line["id"])).result
            for line in lines
            if line["status"] == "allowed"
        ),
        files={
            str(path.relative_to(home.workspace)): path.read_text("utf-8", "replace")
            for path in home.workspace.rglob("*")
            if path.is_file()
        },
        prompts=prompts,
    )


def _said(client: Client, text: str, choice: str) -> tuple[str, tuple[int, ...]]:
    """Say something, agree to what is asked; return the answer and the tokens of each prompt."""
    prompts: list[int] = []
    stream = client.stream(SendMessage(text=text, interactive=True, tool_choice=choice))
    try:
        for event in stream:
            match event:
                case ApprovalRequested():
                    stream.answer(event.approval_id, "once", event.digest)
                case QuestionAsked():
                    stream.answer(event.question_id, "")
                case PromptEvaluated():
                    prompts.append(event.tokens)
                case _:
                    pass
        finished: TurnFinished = stream.result
    except ClawError as error:
        return f"error: {error.message}", tuple(prompts)
    return finished.text, tuple(prompts)


def _described(left: Outcome) -> str:
    calls = ", ".join(left.calls) or "no call"
    return f"{calls}; {' '.join(left.answer.split())[:100]!r}"
