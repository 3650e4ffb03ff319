"""A new user's first minute, played for real on a bare root, and written down as a page.

    python -m tests.booted.first_minute        as root; writes docs/first-minute.md anew

The root is what debootstrap leaves: no service manager runs in it, as in a container. Every step is
typed at a terminal of its own; where clawd asks, it is answered as the step says.
"""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pexpect
import pyte

from tests.support.booted import Machine
from tests.support.installed import CHECKOUT, IDLE, bare_root, package

PAGE = CHECKOUT / "docs" / "first-minute.md"
USER = "ada"
DEB = "clawd.deb"
COLUMNS, ROWS = 132, 200
LIMIT_S = 200
QUESTION = r"Approve\? \[y/N\][^\n]*d details"


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something typed at a prompt.

    Attributes:
        says: what the page tells before it.
        typed: the command, for a shell.
        user: who types it.
        answers: what is typed when clawd asks.
        exit_code: how it must end.
    """

    says: str
    typed: str
    user: str = USER
    answers: tuple[str, ...] = ()
    exit_code: int = 0


STEPS = (
    Step(
        says="Install the package. It contains everything it needs, including a very small model.",
        typed=f"apt-get install -qq -y ./{DEB}",
        user="root",
    ),
    Step(
        says="Ask something. No setup is needed: your own daemon starts by itself.",
        typed='clawctl agent -m "hello"',
    ),
    Step(
        says="Give it a file to look at. It may touch only `~/clawd-workspace`.",
        typed='echo "water the roses" > ~/clawd-workspace/plan.txt',
    ),
    Step(
        says="Let it run a command. Read-only commands run unasked; it asks before all others.",
        typed='clawctl agent -m "run the command: ls"',
    ),
    Step(
        says="Every call leaves a receipt, whether it was allowed or not.",
        typed="clawctl receipt list",
    ),
    Step(
        says="The receipts form a chain. Changing, removing or adding one breaks it.",
        typed="clawctl receipt verify",
    ),
    Step(
        says="Stop every tool at once. Running ones are killed, and nothing new starts.",
        typed='clawctl estop --reason "trying it out"',
    ),
    Step(
        says="Now no tool runs, no matter who asks for it.",
        typed="clawctl tool run file_list",
        exit_code=7,
    ),
    Step(says="Allow tools again.", typed="clawctl estop --clear"),
    Step(
        says="End your daemon. Its home is `~/.clawd`; what it holds stays until you delete it.",
        typed="clawctl stop",
    ),
    Step(
        says="Uninstall it.",
        typed="apt-get purge -qq -y clawd",
        user="root",
    ),
    Step(
        says="Program, settings and system data are gone; only your `~/.clawd` is left.",
        typed="ls -d /usr/lib/clawd /etc/clawd /var/lib/clawd; command -v clawctl",
        exit_code=1,
    ),
)

INTRODUCTION = """\
# The first minute

From a bare Debian 12 to a first answer, a first command, a verified receipt, and removal. This
needs no network and no service manager: it was recorded in a container-like root, by
`python -m tests.booted.first_minute`; a test plays it again. `#` is root, `$` is you.
"""

# What apt says of itself.
NOISE = re.compile(r"debconf: |\(Reading database|.*Selecting previously")
# What differs from one run to the next, and what stands for it in a comparison.
VARYING = (
    (re.compile(r"\b(receipt|conv|turn)-[0-9A-Za-z…]+"), r"\1-ID"),
    (re.compile(r"\b[0-9a-f]{8,64}\b"), "HASH"),
    (re.compile(r"\(pid \d+\)"), "(pid N)"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)?k? ?(ms|s|tok/s|tok|tokens|%)(?![a-z])"), "N"),
    (re.compile(r"( · N)+"), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"(?m) $"), ""),
)


def play() -> str:
    """Play every step on a fresh bare root, and return the page."""
    parts = [INTRODUCTION]
    with Machine(bare_root()) as machine:
        machine.start(*IDLE)
        machine.wait_for(IDLE[0])
        machine.out("useradd", "--create-home", "--shell", "/bin/bash", USER)
        shutil.copyfile(package(), machine.path(f"/root/{DEB}"))
        for step in STEPS:
            prompt = "#" if step.user == "root" else "$"
            shown = perform(machine, step)
            block = f"{prompt} {step.typed}\n{shown}".rstrip()
            parts.append(f"{step.says}\n\n```console\n{block}\n```\n")
    return "\n".join(parts)


def perform(machine: Machine, step: Step) -> str:
    """Type one step at a terminal, answer what is asked, and return what the screen shows."""
    shell = machine.words(
        "bash", "-c", step.typed, user=step.user, environ={"TERM": "xterm", "NO_COLOR": "1"}
    )
    child = pexpect.spawn(
        shell[0], shell[1:], encoding="utf-8", timeout=LIMIT_S, dimensions=(ROWS, COLUMNS)
    )
    child.delaybeforesend = None
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    for answer in step.answers:
        child.expect(QUESTION)
        stream.feed(child.before + child.after)
        child.sendline(answer)
    child.expect(pexpect.EOF)
    stream.feed(child.before)
    child.wait()  # its terminal goes a moment before it does
    child.close()
    lines = [line.rstrip() for line in screen.display if not NOISE.match(line)]
    shown = "\n".join(lines).strip("\n")
    if child.exitstatus != step.exit_code:
        raise AssertionError(f"{step.typed}: {child.exitstatus}\n{shown}")
    return shown


def comparable(page: str) -> str:
    """Return the page without what differs from one run to the next."""
    for pattern, instead in VARYING:
        page = pattern.sub(instead, page)
    return page


def main() -> int:
    """Write the page."""
    Path(PAGE).write_text(play(), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
