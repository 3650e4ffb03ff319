"""What tests ask of the clawd on a booted machine, and how they set it up."""

import json
from pathlib import Path
from typing import Any

import pexpect

from tests.support.booted import Done, Machine

CONFIG = "/etc/clawd/config.toml"
SCRIPT = "/etc/clawd/script.json"
SERVICE = "clawd.service"
LIMIT_S = 60
ASKED = r"Approve\? \[y/N\]"


def configure(machine: Machine, top: str = "", tables: str = "") -> None:
    """Write the machine's config: the embedded model, with what is given in front and after."""
    local = '[providers.models.local]\nkind = "local"\nmodel = "embedded"\n'
    machine.put(CONFIG, f'default_provider = "local"\n{top}\n{local}{tables}\n')


def script(machine: Machine, *replies: dict[str, Any], tables: str = "") -> None:
    """Let the mock provider answer with these replies."""
    machine.put(SCRIPT, json.dumps({"replies": list(replies)}))
    mock = f'[providers.models.mock]\nkind = "mock"\nscript = "{SCRIPT}"\n'
    machine.put(CONFIG, f'default_provider = "mock"\n{mock}{tables}')


def ctl(machine: Machine, user: str, *arguments: str) -> Done:
    """Run clawctl as a user."""
    return machine.run("clawctl", *arguments, user=user)


def ask(machine: Machine, user: str, text: str) -> str:
    """Send one message, which must be answered, and return the answer."""
    done = ctl(machine, user, "agent", "-q", "-m", text)
    assert done.returncode == 0, done.stderr + journal(machine)
    return done.stdout.strip()


def of(machine: Machine, user: str, *arguments: str) -> Any:
    """Run clawctl with --json, and return what it printed."""
    done = ctl(machine, user, *arguments, "--json")
    assert done.returncode == 0, f"{arguments}: {done.stderr}{done.stdout}{journal(machine)}"
    return json.loads(done.stdout)


def approving(machine: Machine, user: str, *arguments: str) -> tuple[int, str]:
    """Run clawctl on a terminal, approve what it asks, and return its exit code and screen."""
    child = at_terminal(machine, user, *arguments)
    screen = ""
    while child.expect([ASKED, pexpect.EOF]) == 0:
        screen += child.before + child.after
        child.sendline("y")
    screen += child.before
    return ended(child), screen


def ended(child: Any) -> int:
    """Wait for the end of what runs on a terminal, and return its exit code."""
    child.expect(pexpect.EOF)
    child.wait()  # its terminal goes a moment before it does
    child.close()
    assert child.exitstatus is not None, child.before
    return int(child.exitstatus)


def at_terminal(machine: Machine, user: str, *arguments: str) -> Any:
    """Start clawctl on a terminal of its own."""
    words = machine.words("clawctl", *arguments, user=user)
    child = pexpect.spawn(
        words[0], words[1:], encoding="utf-8", timeout=LIMIT_S, dimensions=(60, 160)
    )
    child.delaybeforesend = None
    return child


def main_pid(machine: Machine) -> int:
    """Return the daemon's pid, as the machine counts; 0 where it does not run."""
    return int(shown(machine, "MainPID"))


def shown(machine: Machine, name: str) -> str:
    """Return one property of the unit."""
    return machine.out("systemctl", "show", "--value", "-p", name, SERVICE).strip()


def is_active(machine: Machine, unit: str = SERVICE) -> bool:
    """Return whether a unit is active."""
    return machine.out("systemctl", "show", "--value", "-p", "ActiveState", unit) == "active\n"


def journal(machine: Machine, *more: str) -> str:
    """Return what the journal has of the unit."""
    return machine.run("journalctl", "-u", SERVICE, "--no-pager", "-o", "cat", *more).stdout


def entries(machine: Machine, *matches: str) -> list[dict[str, str]]:
    """Return what the journal has of the unit, with all fields, where these match."""
    words = ["journalctl", "-u", SERVICE, "--no-pager", "-o", "json", *matches]
    return [json.loads(line) for line in machine.out(*words).splitlines()]


def drop_in(machine: Machine, text: str) -> None:
    """Change the unit as `systemctl edit` does."""
    machine.put("/etc/systemd/system/clawd.service.d/test.conf", text)
    machine.out("systemctl", "daemon-reload")


def state(machine: Machine) -> Path:
    """Return where the daemon's home is seen from here."""
    return machine.path("/var/lib/private/clawd")
