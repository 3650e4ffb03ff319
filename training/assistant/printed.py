"""What well-known commands print, and what that means: for `outcomes.py`.

Each method gives the text of a command, an English and a German sentence that is true of it.
"""

import base64
import binascii
import random
import re
from calendar import SUNDAY, TextCalendar
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from training.assistant.values import Values
from training.data.lists import WEEKDAYS

GERMAN_DAYS = ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"]
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_PROCESSES = [
    "firefox", "node", "postgres", "ffmpeg", "python3", "java", "chrome", "dockerd", "nginx",
    "mysqld", "code", "gnome-shell", "Xorg", "redis-server", "systemd", "sshd", "rsync", "cron",
]  # fmt: skip
_IMAGES = ["postgres", "redis", "nginx", "mysql", "node", "python", "mongo", "traefik"]
_AUTHORS = ["Anna", "Tom", "Mira", "Jonas", "Priya", "Ben", "Lea", "Omar", "Nora", "Felix"]
_HIDDEN = [".env", ".gitignore", ".git", ".venv", ".config", ".cache", ".editorconfig", ".github"]
_HIDDEN_FOLDERS = {".git", ".venv", ".config", ".cache", ".github"}
_FILE_MODES = ["-rw-r--r--", "-rw-r--r--", "-rw-------", "-rwxr-xr-x", "-rw-rw-r--", "-r--r--r--"]
_FOLDER_MODES = ["drwxr-xr-x", "drwxr-xr-x", "drwx------", "drwxrwxr-x"]
_SERVICES = ["db", "cache", "web", "api", "worker", "proxy"]


class Printed(NamedTuple):
    """The output of a command and the sentences that sum it up."""

    result: str
    english: str
    german: str
    first: str = ""
    code: int = 0  # with which it exits


def _and(items: list[str]) -> tuple[str, str]:
    if len(items) == 1:
        return items[0], items[0]
    start = ", ".join(items[:-1])
    return f"{start} and {items[-1]}", f"{start} und {items[-1]}"


class Printer:
    """Invents what commands print."""

    def __init__(self, rng: random.Random, values: Values) -> None:
        self._rng = rng
        self._values = values
        self._make = values.make

    def of(self, words: list[str], language: str) -> Printed | None:
        """Return what a command prints; None for one that is not known here."""
        known: dict[str, Callable[[list[str], str], Printed | None]] = {
            "git": self._git,
            "ps": self._ps,
            "docker": self._docker,
            "df": self._df,
            "du": self._du,
            "free": self._free,
            "ping": self._ping,
            "systemctl": self._systemctl,
            "journalctl": self._lines,
            "pip": self._pip,
            "pytest": self._tests,
            "npm": self._npm,
            "cargo": self._cargo,
            "make": self._built,
            "ls": self._ls,
            "find": self._find,
            "head": self._lines,
            "tail": self._lines,
            "cat": self._cat,
            "man": self._lines,
            "ruff": self._linted,
            "mypy": self._typed,
            "npx": self._linted,
            "go": self._go,
            "black": self._formatted,
            "md5sum": self._one_sha256sum,
            "lsof": self._opened,
            "fuser": self._opened,
            "apt": self._apt,
            "sort": self._sorted,
            "shuf": self._lines,
        }
        if words[0].startswith("TZ="):
            words = words[1:]
        if "&&" in words or "||" in words or ";" in words:
            return None
        make = known.get(words[0]) or getattr(self, f"_one_{words[0]}".replace("-", "_"), None)
        return make(words[1:], language) if make else None

    # what is drawn

    def _branch(self) -> str:
        return str(self._values.of("XB", "en").sent)

    def _names(self, least: int, most: int) -> list[str]:
        names = [self._values.of("F", "en").sent for _ in range(self._rng.randint(least, most))]
        return list(dict.fromkeys(names))

    def _hash(self) -> str:
        return f"{self._rng.getrandbits(28):07x}"

    def _day(self) -> str:
        rng = self._rng
        return (
            f"{rng.choice(_MONTHS)} {rng.randint(1, 28):2d} "
            f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        )

    def _process(self) -> str:
        return self._make.word() if self._rng.random() < 0.3 else self._rng.choice(_PROCESSES)

    def _processes(self, count: int) -> list[str]:
        return list(dict.fromkeys(self._process() for _ in range(count + 3)))[:count]

    def _version(self) -> str:
        rng = self._rng
        return f"{rng.randint(0, 24)}.{rng.randint(0, 30)}.{rng.randint(0, 12)}"

    def _address(self) -> str:
        rng = self._rng
        start = rng.choice(["192.168.178", f"192.168.{rng.randint(0, 99)}", "10.0.0", "172.17.0"])
        return f"{start}.{rng.randint(2, 254)}"

    # git

    def _git(self, rest: list[str], language: str) -> Printed | None:
        return (
            self._git_seen(rest, language)
            or self._git_changed(rest, language)
            or self._git_branches(rest)
            or self._git_remotes(rest)
            or self._git_settings(rest)
        )

    def _git_seen(self, rest: list[str], language: str) -> Printed | None:
        """What git tells of the work tree, the stash and the commits."""
        match rest:
            case ["status", *_]:
                return self._git_status()
            case ["log", *more]:
                return self._git_log(more, language)
            case ["diff"]:
                return self._git_diff()
            case ["diff", "--staged"]:
                return self._git_diff(what=("staged", "vorgemerkt"))
            case ["diff", name] if name[:1] != "-":
                return self._git_diff(name if "." in name else "")
            case ["diff", "--stat"]:
                names = self._names(1, 3)
                rows = [f" {name} | {self._rng.randint(1, 60)} +-" for name in names]
                count = len(names)
                both = _and(names)
                total = f" {count} file{'s' * (count > 1)} changed"
                return Printed(
                    "\n".join([*rows, total]),
                    f"{count} file{'s' * (count > 1)} changed: {both[0]}.",
                    f"Geändert: {both[1]}.",
                )
            case ["show", *_, code] if code[:1] != "-":
                return self._git_one("show", code, language)
            case ["show", "--stat"]:
                name, message = self._names(1, 1)[0], self._values.of("GM", language).sent
                return Printed(
                    f"commit {self._hash()}\n    {message}\n\n {name} | 4 +-\n 1 file changed",
                    f'The last commit, "{message}", changed {name}.',
                    f"Der letzte Commit, „{message}“, hat {name} geändert.",
                )
            case ["blame", name]:
                return self._git_blame(name)
            case ["rev-list", "--count", "HEAD"]:
                count = self._rng.randint(2, 4000)
                return Printed(
                    str(count), f"There are {count} commits.", f"Es sind {count} Commits."
                )
            case ["shortlog", "-sn", "HEAD"]:
                return self._git_authors()
            case ["stash", "list"]:
                return self._git_stashes(language)
            case _:
                return None

    def _git_changed(self, rest: list[str], language: str) -> Printed | None:
        """What git does to the work tree, the index and the last commit."""
        match rest:
            case ["add", "." | "-A"]:
                return Printed("(no output)", "Everything is staged.", "Alles ist vorgemerkt.")
            case ["add", *_, name]:
                return Printed("(no output)", f"{name} is staged.", f"{name} ist vorgemerkt.")
            case ["restore", "--staged", name]:
                return Printed(
                    "(no output)",
                    f"{name} is no longer staged.",
                    f"{name} ist nicht mehr vorgemerkt.",
                )
            case ["restore", name]:
                return Printed(
                    "(no output)",
                    f"{name} is as in the last commit again.",
                    f"{name} ist wieder wie im letzten Commit.",
                )
            case ["reset", "--soft", "HEAD~1"]:
                return Printed(
                    "(no output)",
                    "The last commit is undone; its changes are still staged.",
                    "Der letzte Commit ist zurückgenommen; die Änderungen sind noch vorgemerkt.",
                )
            case ["revert" | "cherry-pick" as verb, *_, code] if code[:1] != "-":
                return self._git_one(verb, code, language)
            case _:
                return None

    def _git_branches(self, rest: list[str]) -> Printed | None:
        """Branches and tags: which there are, and what is done with them."""
        match rest:
            case ["branch", "--show-current"]:
                branch = self._branch()
                return Printed(
                    branch, f"You are on the branch {branch}.", f"Du bist auf dem Branch {branch}."
                )
            case ["branch"] | ["branch", "-a"]:
                names = list(
                    dict.fromkeys([self._branch() for _ in range(self._rng.randint(1, 4))])
                )
                on = self._rng.choice(names)
                both = _and(names)
                return Printed(
                    "\n".join(f"{'*' if name == on else ' '} {name}" for name in names),
                    f"The branches are {both[0]}; you are on {on}.",
                    f"Die Branches sind {both[1]}; du bist auf {on}.",
                )
            case ["branch", "-m", name]:
                return Printed(
                    "(no output)",
                    f"This branch is now called {name}.",
                    f"Dieser Branch heißt jetzt {name}.",
                )
            case ["branch", "-d", name]:
                return Printed(
                    f"Deleted branch {name} (was {self._hash()}).",
                    f"Deleted the branch {name}.",
                    f"Der Branch {name} ist gelöscht.",
                )
            case ["checkout", "-"]:
                branch = self._branch()
                return Printed(
                    f"Switched to branch '{branch}'",
                    f"You are now on {branch}.",
                    f"Du bist jetzt auf {branch}.",
                )
            case ["rebase", name]:
                return Printed(
                    "Successfully rebased and updated.",
                    f"Rebased onto {name}.",
                    f"Auf {name} gerebased.",
                )
            case ["tag"]:
                start = self._rng.randint(0, 4)
                tags = [f"v{start}.{minor}.{self._rng.randint(0, 9)}" for minor in range(1, 4)]
                both = _and(tags)
                return Printed(
                    "\n".join(tags), f"The tags are {both[0]}.", f"Die Tags sind {both[1]}."
                )
            case ["tag", name]:
                return Printed(
                    "(no output)", f"Set the tag {name}.", f"Der Tag {name} ist gesetzt."
                )
            case _:
                return None

    def _git_remotes(self, rest: list[str]) -> Printed | None:
        """What git gets from another repository or sends there."""
        match rest:
            case ["remote", "-v"]:
                host = self._rng.choice(["github.com", "gitlab.com", "codeberg.org"])
                url = f"git@{host}:{self._make.word()}/{self._make.word()}.git"
                return Printed(
                    f"origin\t{url} (fetch)\norigin\t{url} (push)",
                    f"The remote is origin: {url}",
                    f"Das Remote ist origin: {url}",
                )
            case ["clone", url]:
                name = url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
                return Printed(
                    f"Cloning into '{name}'...",
                    f"Cloned it into {name}.",
                    f"Geklont nach {name}.",
                )
            case ["fetch"]:
                branch = self._branch()
                return Printed(
                    f"   {self._hash()}..{self._hash()}  {branch} -> origin/{branch}",
                    f"Fetched; {branch} has new commits.",
                    f"Geholt; {branch} hat neue Commits.",
                )
            case ["pull"]:
                if self._rng.random() < 0.3:
                    return Printed(
                        "Already up to date.", "It is up to date already.", "Es ist schon aktuell."
                    )
                names = self._names(1, 3)
                both, rows = _and(names), [f" {name} | 4 +-" for name in names]
                return Printed(
                    "\n".join([f"Updating {self._hash()}..{self._hash()}", "Fast-forward", *rows]),
                    f"Pulled; that changed {both[0]}.",
                    f"Gepullt; geändert wurde {both[1]}."
                    if len(names) == 1
                    else f"Gepullt; geändert wurden {both[1]}.",
                )
            case ["push", *more]:
                branch = more[-1] if len(more) > 1 else self._branch()
                return Printed(
                    f"   {self._hash()}..{self._hash()}  {branch} -> {branch}",
                    f"Pushed {branch}.",
                    f"{branch} ist gepusht.",
                )
            case _:
                return None

    def _git_settings(self, rest: list[str]) -> Printed | None:
        """A new repository, and by which name and address git knows its user."""
        match rest:
            case ["init"]:
                return Printed(
                    f"Initialized empty Git repository in /home/{self._make.word()}/.git/",
                    "This folder is now a git repository.",
                    "Dieser Ordner ist jetzt ein Git-Repository.",
                )
            case ["config", "user.email"]:
                address = f"{self._make.word()}@{self._make.word()}.org"
                return Printed(address, f"git uses {address}.", f"Git benutzt {address}.")
            case ["config", "user.name", name]:
                return Printed(
                    "(no output)",
                    f"Your git name is now {name}.",
                    f"Dein Git-Name ist jetzt {name}.",
                )
            case _:
                return None

    def _git_status(self) -> Printed:
        rng, branch = self._rng, self._branch()
        names = [] if rng.random() < 0.2 else self._names(1, 4)
        if not names:
            return Printed(
                f"On branch {branch}\nnothing to commit, working tree clean",
                f"You are on {branch}; nothing is changed.",
                f"Du bist auf {branch}; nichts ist geändert.",
            )
        cut = rng.randint(0, len(names))
        changed, new = names[:cut], names[cut:]
        english, german = [], []
        if changed:
            is_one = len(changed) == 1
            english.append(f"{_and(changed)[0]} {'is' if is_one else 'are'} modified")
            german.append(f"{_and(changed)[1]} {'ist' if is_one else 'sind'} geändert")
        if new:
            is_one = len(new) == 1
            english.append(f"{_and(new)[0]} {'is' if is_one else 'are'} untracked")
            german.append(f"{_and(new)[1]} {'ist' if is_one else 'sind'} neu")
        if rng.random() < 0.35:
            rows = [f" M {name}" for name in changed] + [f"?? {name}" for name in new]
            told = "; ".join(english), "; ".join(german)
            return Printed("\n".join(rows), f"{told[0]}.", f"{told[1]}.")
        rows = [f"On branch {branch}"]
        if changed:
            rows += ["Changes not staged for commit:"] + [f"  modified: {name}" for name in changed]
        if new:
            rows += ["Untracked files:"] + [f"  {name}" for name in new]
        return Printed(
            "\n".join(rows),
            f"You are on {branch}; {'; '.join(english)}.",
            f"Du bist auf {branch}; {'; '.join(german)}.",
        )

    def _git_log(self, more: list[str], language: str) -> Printed:
        rng = self._rng
        which = ("The last {} commits", "Die letzten {} Commits")
        for option, english, german in (
            ("@{u}..", "Not pushed yet", "Noch nicht gepusht"),
            ("--since=", "Commits of today", "Commits von heute"),
            ("--since=1.week", "Commits of the last week", "Commits der letzten Woche"),
            ("--author=", "Commits by {}", "Commits von {}"),
            ("--grep=", "Commits that mention {}", "Commits, die {} nennen"),
        ):
            for word in more:
                if word.startswith(option):
                    name = word.removeprefix(option)
                    which = (english.format(name), german.format(name))
        if which[0][0] != "T" and rng.random() < 0.2:
            return Printed(
                "(no output)", "There are no such commits.", "Solche Commits gibt es nicht."
            )
        if more[:1] == ["-1"]:
            return self._git_last(more[-1] if "--" in more else "", language)
        asked = [int(word) for word in more if word.isdigit()]
        count = min(asked[0] if asked else rng.randint(2, 4), 5)
        about = "".join(
            f"{word.removeprefix('--grep=')}: " for word in more if word.startswith("--grep=")
        )
        rows = [
            f"{self._hash()} {about}{self._values.of('GM', language).sent}"
            for _ in range(max(count, 1))
        ]
        while len(rows) > 1 and sum(map(len, rows)) > 230:
            rows.pop()
        if "--" in more:
            listed = "\n".join(rows)
            return Printed(
                listed,
                f"{more[-1]} was changed by these commits:\n{listed}",
                f"{more[-1]} wurde von diesen Commits geändert:\n{listed}",
            )
        if which[0][0] != "T":
            listed = "\n".join(rows)
            return Printed(listed, f"{which[0]}:\n{listed}", f"{which[1]}:\n{listed}")
        if len(rows) == 1:
            return Printed(rows[0], f"The last commit: {rows[0]}", f"Der letzte Commit: {rows[0]}")
        listed = "\n".join(rows)
        return Printed(
            listed,
            f"The last {len(rows)} commits:\n{listed}",
            f"Die letzten {len(rows)} Commits:\n{listed}",
        )

    def _git_last(self, name: str, language: str) -> Printed:
        """The last commit of all, or that of a file."""
        rng, message = self._rng, self._values.of("GM", language).sent
        person = f"{rng.choice(_AUTHORS)} {self._make.word().capitalize()}"
        day = f"{self._day()} {rng.randint(2022, 2030)}"
        result = f"commit {self._hash()}\nAuthor: {person}\nDate:   {day}\n\n    {message}"
        if name:
            return Printed(
                result,
                f"{person} changed {name} last, on {day}: {message}",
                f"{person} hat {name} zuletzt geändert, am {day}: {message}",
            )
        return Printed(
            result,
            f"The last commit is by {person}, on {day}: {message}",
            f"Der letzte Commit ist von {person}, am {day}: {message}",
        )

    def _git_one(self, verb: str, code: str, language: str) -> Printed:
        """What git says of one commit that is shown, reverted or taken over."""
        message = self._values.of("GM", language).sent
        if verb == "show":
            person, name, word = self._rng.choice(_AUTHORS), self._names(1, 1)[0], self._make.word()
            return Printed(
                f"commit {code}\nAuthor: {person}\n\n    {message}\n\n--- a/{name}\n+++ b/{name}\n"
                f"+{word}",
                f"{code} is by {person}, it changed {name}: {message}",
                f"{code} ist von {person} und hat {name} geändert: {message}",
            )
        if verb == "revert":
            return Printed(
                f'[{self._branch()} {self._hash()}] Revert "{message}"\n 1 file changed',
                f"Reverted {code}: {message}",
                f"{code} ist zurückgenommen: {message}",
            )
        return Printed(
            f"[{self._branch()} {self._hash()}] {message}\n 1 file changed",
            f"{code} is on this branch now: {message}",
            f"{code} ist jetzt auf diesem Branch: {message}",
        )

    def _git_blame(self, name: str) -> Printed:
        people = self._rng.sample(_AUTHORS, self._rng.randint(1, 2))
        rows = [
            f"{self._hash()} ({person} {self._rng.randint(2022, 2030)}-0{number + 3}-12 "
            f"{number + 1}) {self._make.words(1, 3)}"
            for number, person in enumerate(people)
        ]
        both = _and(people)
        return Printed(
            "\n".join(rows),
            f"The lines of {name} are by {both[0]}.",
            f"Die Zeilen von {name} sind von {both[1]}.",
        )

    def _git_authors(self) -> Printed:
        people = self._rng.sample(_AUTHORS, self._rng.randint(2, 3))
        counts = sorted((self._rng.randint(1, 900) for _ in people), reverse=True)
        rows = [f"  {count}\t{name}" for count, name in zip(counts, people, strict=True)]
        return Printed(
            "\n".join(rows),
            f"{people[0]} has made the most commits, {counts[0]}; then comes {people[1]}.",
            f"{people[0]} hat die meisten Commits gemacht, {counts[0]}; dann kommt {people[1]}.",
        )

    def _git_diff(self, name: str = "", what: tuple[str, str] = ("changed", "geändert")) -> Printed:
        rng = self._rng
        if rng.random() < 0.12:
            if name:
                return Printed(
                    "(no output)", f"{name} is not changed.", f"{name} ist nicht geändert."
                )
            nothing = f"Nothing is {what[0]}." if what[0] == "staged" else "Nothing has changed."
            return Printed("(no output)", nothing, f"Nichts ist {what[1]}.")
        name, word = name or self._names(1, 1)[0], self._make.word()
        old, new = rng.sample(range(100), 2)
        return Printed(
            f"--- a/{name}\n+++ b/{name}\n@@ -{old} +{old} @@\n-{word} = {old}\n+{word} = {new}",
            f"In {name}, {word} = {old} became {word} = {new}.",
            f"In {name} wurde aus {word} = {old} jetzt {word} = {new}.",
        )

    def _git_stashes(self, language: str) -> Printed:
        if self._rng.random() < 0.25:
            return Printed("(no output)", "Nothing is stashed.", "Es liegt nichts im Stash.")
        rows = [
            f"stash@{{{index}}}: On {self._branch()}: {self._values.of('GM', language).sent}"
            for index in range(self._rng.randint(1, 2))
        ]
        listed = "\n".join(rows)
        return Printed(listed, f"In the stash:\n{listed}", f"Im Stash liegt:\n{listed}")

    # the machine

    def _ps(self, rest: list[str], _language: str) -> Printed:
        rng = self._rng
        names = self._processes(rng.randint(2, 4))
        shares = sorted((rng.randint(1, 990) / 10 for _ in names), reverse=True)
        others = [rng.randint(1, 200) / 10 for _ in names]
        by_memory = any("mem" in word for word in rest)
        rows = []
        for name, share, other in zip(names, shares, others, strict=True):
            cpu, memory = (other, share) if by_memory else (share, other)
            user = rng.choice(["root", "anna", "user", self._make.word()])
            rows.append(f"{user} {rng.randint(100, 99999)} {cpu} {memory} {name}")
        result = "\n".join(["USER PID %CPU %MEM COMMAND", *rows])
        if any("sort" in word for word in rest):
            kind = ("memory", "Speicher") if by_memory else ("CPU", "CPU")
            return Printed(
                result,
                f"{names[0]} uses the most {kind[0]}: {shares[0]}%.",
                f"{names[0]} braucht am meisten {kind[1]}: {shares[0]} %.",
            )
        both = _and(names)
        return Printed(
            result,
            f"Running are {both[0]}; {names[0]} uses {shares[0]}% of the CPU.",
            f"Es laufen {both[1]}; {names[0]} braucht {shares[0]} % der CPU.",
        )

    def _docker(self, rest: list[str], language: str) -> Printed | None:
        return (
            self._docker_containers(rest, language)
            or self._docker_images(rest)
            or self._docker_compose(rest, language)
            or self._docker_space(rest)
        )

    def _docker_containers(self, rest: list[str], language: str) -> Printed | None:
        """Containers: which there are, what they say, and what is done with them."""
        rng = self._rng
        match rest:
            case ["ps", *more]:
                return self._docker_ps(is_all=bool(more))
            case ["logs", *_]:
                return self._lines(rest[1:], language)
            case ["stats", "--no-stream"]:
                name = f"{self._make.word()}-{rng.choice(_SERVICES)}"
                share, memory = f"{rng.randint(0, 9900) / 100:.2f}%", f"{rng.randint(9, 900)}MiB"
                return Printed(
                    f"NAME  CPU %  MEM USAGE\n{name}  {share}  {memory}",
                    f"{name} uses {share} of the CPU and {memory} of memory.",
                    f"{name} braucht {share} CPU und {memory} Speicher.",
                )
            case ["stop" | "start" | "restart" | "rm" as verb, name]:
                done = {
                    "stop": "Stopped", "start": "Started", "restart": "Restarted", "rm": "Removed",
                }[verb]  # fmt: skip
                getan = {
                    "stop": "gestoppt", "start": "gestartet", "restart": "neu gestartet",
                    "rm": "entfernt",
                }[verb]  # fmt: skip
                return Printed(name, f"{done} {name}.", f"{name} ist {getan}.")
            case _:
                return None

    def _docker_ps(self, *, is_all: bool) -> Printed:
        """The containers that are running, or all of them."""
        rng = self._rng
        head = "CONTAINER ID  IMAGE  STATUS  NAMES"
        if rng.random() < 0.15:
            return Printed(head, "No container is running.", "Es läuft kein Container.")
        project = self._make.word()
        images = rng.sample(_IMAGES, rng.randint(1, 3))
        names = [
            f"{project}-{service}{rng.choice(['', '-1'])}"
            for service in rng.sample(_SERVICES, len(images))
        ]
        rows = []
        for image, name in zip(images, names, strict=True):
            state = f"Up {rng.randint(2, 59)} {rng.choice(['minutes', 'hours', 'days'])}"
            if is_all:
                state = rng.choice([state, "Exited (0) 2 hours ago"])
            tag = rng.randint(3, 16)
            rows.append(f"{rng.getrandbits(48):012x}  {image}:{tag}  {state}  {name}")
        both = _and(names)
        is_one = len(names) == 1
        english = f"{both[0]} {'is' if is_one else 'are'} running."
        german = f"{both[1]} {'läuft' if is_one else 'laufen'}."
        if is_all:
            english, german = f"The containers: {both[0]}.", f"Die Container: {both[1]}."
        return Printed("\n".join([head, *rows]), english, german)

    def _docker_images(self, rest: list[str]) -> Printed | None:
        """Images: which there are, and how one comes."""
        rng = self._rng
        match rest:
            case ["images"]:
                images = rng.sample(_IMAGES, rng.randint(1, 3))
                tagged = [f"{image}:{rng.randint(3, 16)}" for image in images]
                rows = [f"{name.replace(':', '  ')}  {rng.randint(20, 900)}MB" for name in tagged]
                both = _and(images)
                return Printed(
                    "\n".join(["REPOSITORY  TAG  SIZE", *rows]),
                    f"The images are {both[0]}.",
                    f"Die Images sind {both[1]}.",
                )
            case ["build", "-t", name, "."]:
                return Printed(
                    f"naming to docker.io/library/{name}:latest done",
                    f"The image {name} is built.",
                    f"Das Image {name} ist gebaut.",
                )
            case ["pull", name]:
                full = name if ":" in name else f"{name}:latest"
                return Printed(
                    f"Status: Downloaded newer image for {full}",
                    f"Pulled {full}.",
                    f"{full} ist geholt.",
                )
            case _:
                return None

    def _docker_compose(self, rest: list[str], language: str) -> Printed | None:
        """The services of a project, together."""
        rng = self._rng
        match rest:
            case ["compose", "logs"]:
                return self._lines([rest[-1]], language)
            case ["compose", "up", "-d"] | ["compose", "down"]:
                names = rng.sample(_SERVICES, rng.randint(1, 3))
                project, both, is_one = self._make.word(), _and(names), len(names) == 1
                state = "Started" if rest[1] == "up" else "Removed"
                rows = [f"Container {project}-{name}-1  {state}" for name in names]
                if rest[1] == "up":
                    english = f"{both[0]} {'is' if is_one else 'are'} up."
                    german = f"{both[1]} {'läuft' if is_one else 'laufen'} jetzt."
                else:
                    english = f"{both[0]} {'was' if is_one else 'were'} stopped and removed."
                    german = f"{both[1]} {'ist' if is_one else 'sind'} gestoppt und entfernt."
                return Printed("\n".join(rows), english, german)
            case _:
                return None

    def _docker_space(self, rest: list[str]) -> Printed | None:
        """How much docker takes, and what was freed."""
        rng = self._rng
        match rest:
            case ["system", "df"]:
                size, free = (
                    f"{rng.randint(1, 90)}.{rng.randint(0, 9)}GB",
                    f"{rng.randint(1, 60)}GB",
                )
                return Printed(
                    f"TYPE  TOTAL  SIZE  RECLAIMABLE\nImages  {rng.randint(1, 40)}  {size}  {free}",
                    f"The images take {size}; {free} of that can be freed.",
                    f"Die Images brauchen {size}; davon lassen sich {free} freigeben.",
                )
            case ["system", "prune", "-f"]:
                size = f"{rng.randint(1, 60)}.{rng.randint(0, 9)}GB"
                return Printed(
                    f"Total reclaimed space: {size}",
                    f"Cleaned up; that freed {size}.",
                    f"Aufgeräumt; dadurch sind {size} frei geworden.",
                )
            case _:
                return None

    def _df(self, rest: list[str], _language: str) -> Printed:
        rng = self._rng
        rows, said, gesagt = [], [], []
        mounts = rest[1:] or [
            "/",
            *rng.sample(["/home", "/boot", "/data", "/mnt/backup"], rng.randint(0, 2)),
        ]
        for index, mount in enumerate(mounts):
            total, share = rng.choice([120, 234, 468, 916, 1800]), rng.randint(3, 99)
            used = total * share // 100
            free = total - used
            device = rng.choice(["/dev/sda", "/dev/nvme0n1p"]) + str(index + 1)
            rows.append(f"{device} {total}G {used}G {free}G {share}% {mount}")
            said.append(f"{free}G are free on {mount} ({share}% used)")
            gesagt.append(f"auf {mount} sind {free}G frei ({share} % belegt)")
        german = "; ".join(gesagt)
        return Printed(
            "\n".join(["Filesystem Size Used Avail Use% Mounted on", *rows]),
            "; ".join(said) + ".",
            german[0].upper() + german[1:] + ".",
        )

    def _du(self, rest: list[str], _language: str) -> Printed | None:
        rng = self._rng
        sizes = sorted((rng.randint(2, 900) for _ in range(rng.randint(2, 4))), reverse=True)
        if "sort" in rest or any("*" in word for word in rest):
            names = [self._make.name() for _ in sizes]
            rows = [f"{size}M\t{name}" for size, name in zip(sizes, names, strict=True)]
            return Printed(
                "\n".join(rows),
                f"The biggest is {names[0]} with {sizes[0]}M.",
                f"Am größten ist {names[0]} mit {sizes[0]}M.",
            )
        if rest[:1] == ["-sh"] and len(rest) == 2:
            size = f"{rng.randint(1, 900)}{rng.choice('KMG')}"
            return Printed(
                f"{size}\t{rest[1]}", f"{rest[1]} takes {size}.", f"{rest[1]} braucht {size}."
            )
        return None

    def _free(self, _rest: list[str], _language: str) -> Printed:
        total = self._rng.choice([4, 8, 16, 32, 64])
        used = self._rng.randint(1, total - 1)
        return Printed(
            f"       total used available\nMem:   {total}Gi {used}Gi {total - used}Gi\n"
            f"Swap:  2Gi 0Gi 2Gi",
            f"{total - used}Gi of {total}Gi are free.",
            f"{total - used}Gi von {total}Gi sind frei.",
        )

    def _one_date(self, rest: list[str], _language: str) -> Printed | None:
        """Of `date -d WHEN FORM` and `date FORM`; the day is invented where it depends on today."""
        told = self._day_told(rest)
        if told:
            return told
        rng, form = self._rng, rest[-1] if rest else ""
        day = date(rng.randint(2026, 2038), rng.randint(1, 12), rng.randint(1, 28))
        if not form.startswith("+"):
            return None
        result = day.strftime(form[1:])
        clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        result = result.replace("00:00", clock)
        return Printed(result, f"It is {result}.", f"Es ist {result}.", result)

    def _one_uptime(self, _rest: list[str], _language: str) -> Printed:
        rng, days, load = self._rng, self._rng.randint(2, 300), self._rng.randint(1, 800) / 100
        return Printed(
            f" {rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:12 up {days} days, "
            f"{rng.randint(1, 23)}:{rng.randint(0, 59):02d}, 1 user, load average: {load}",
            f"The machine has been up for {days} days; the load is {load}.",
            f"Der Rechner läuft seit {days} Tagen; die Last ist {load}.",
        )

    def _one_uname(self, rest: list[str], _language: str) -> Printed:
        rng = self._rng
        kernel = f"{rng.randint(4, 6)}.{rng.randint(0, 19)}.0-{rng.randint(10, 99)}-generic"
        result = (
            kernel if rest == ["-r"] else f"Linux {self._make.word()} {kernel} x86_64 GNU/Linux"
        )
        return Printed(
            result, f"The kernel is Linux {kernel}.", f"Es läuft der Linux-Kernel {kernel}."
        )

    def _one_hostname(self, _rest: list[str], _language: str) -> Printed:
        name = self._rng.choice([self._make.word(), f"{self._make.word()}-pc"])
        return Printed(name, f"This machine is called {name}.", f"Der Rechner heißt {name}.")

    def _one_ip(self, rest: list[str], _language: str) -> Printed | None:
        if rest[:1] == ["route"]:
            first = self._address().rsplit(".", 1)[0]
            return Printed(
                f"default via {first}.1 dev eth0 proto dhcp\n{first}.0/24 dev eth0",
                f"The default gateway is {first}.1.",
                f"Das Standard-Gateway ist {first}.1.",
            )
        if rest[:1] == ["link"]:
            code = ":".join(f"{self._rng.randint(0, 255):02x}" for _ in range(6))
            device = self._rng.choice(["eth0", "wlan0", "enp3s0"])
            return Printed(
                f"2: {device}: <BROADCAST,UP>\n    link/ether {code}",
                f"The MAC address of {device} is {code}.",
                f"Die MAC-Adresse von {device} ist {code}.",
            )
        if rest[:1] != ["addr"]:
            return None
        address, device = self._address(), self._rng.choice(["eth0", "wlan0", "enp3s0", "wlp2s0"])
        return Printed(
            f"1: lo: <LOOPBACK,UP>\n    inet 127.0.0.1/8 scope host lo\n"
            f"2: {device}: <BROADCAST,UP>\n    inet {address}/24 scope global {device}",
            f"Your address is {address} on {device}.",
            f"Deine Adresse ist {address} an {device}.",
        )

    def _ping(self, rest: list[str], _language: str) -> Printed:
        rng, host = self._rng, rest[-1]
        counts = [int(word) for word in rest if word.isdigit()]
        count = counts[0] if counts else 4
        lost = rng.choice([0, 0, 0, 0, count])
        share = 100 if lost else 0
        head = f"{count} packets transmitted, {count - lost} received, {share}% packet loss"
        if lost:
            return Printed(
                head,
                f"{host} did not answer: 100% packet loss.",
                f"{host} antwortet nicht: 100 % Paketverlust.",
                code=1,
            )
        least, mean = rng.randint(10, 99) / 10, rng.randint(100, 900) / 10
        return Printed(
            f"{head}\nrtt min/avg/max = {least}/{mean}/{mean + 20:.1f} ms",
            f"{host} answers: 0% packet loss, {mean} ms on average.",
            f"{host} antwortet: 0 % Paketverlust, im Schnitt {mean} ms.",
        )

    def _systemctl(self, rest: list[str], _language: str) -> Printed | None:
        rng = self._rng
        rest = [word for word in rest if word != "--user"]
        did = {
            "restart": ("Restarted {}.", "{} ist neu gestartet."),
            "stop": ("Stopped {}.", "{} ist gestoppt."),
            "start": ("Started {}.", "{} ist gestartet."),
            "enable": ("{} will start at boot.", "{} startet jetzt beim Booten."),
            "disable": ("{} no longer starts at boot.", "{} startet beim Booten nicht mehr."),
        }.get(rest[0] if rest else "")
        if did and len(rest) == 2:
            return Printed("(no output)", did[0].format(rest[1]), did[1].format(rest[1]))
        if rest == ["list-timers"]:
            name, day = f"{self._make.word()}.timer", self._day()
            return Printed(
                f"NEXT LEFT LAST PASSED UNIT\n{day} 3h left - - {name}",
                f"Next comes {name}, at {day}.",
                f"Als Nächstes kommt {name}, am {day}.",
            )
        if rest == ["--failed"]:
            name = self._process()
            return Printed(
                f"UNIT LOAD ACTIVE SUB\n{name}.service loaded failed failed",
                f"{name} has failed.",
                f"{name} ist ausgefallen.",
            )
        if rest[:1] != ["status"] or len(rest) != 2:
            return None
        name, since = rest[1], self._day()
        state, english, german = rng.choice(
            [
                ("active (running)", "is running", "läuft"),
                ("active (running)", "is running", "läuft"),
                ("inactive (dead)", "is not running", "läuft nicht"),
                (
                    "failed (Result: exit-code)",
                    "has failed and is not running",
                    "ist ausgefallen und läuft nicht",
                ),
            ]
        )
        return Printed(
            f"{name}.service\n   Loaded: loaded\n   Active: {state} since {since}",
            f"{name} {english}, since {since}.",
            f"{name} {german}, seit {since}.",
            code=0 if state[0] == "a" else 3,
        )

    def _one_crontab(self, rest: list[str], _language: str) -> Printed | None:
        if rest != ["-l"]:
            return None
        if self._rng.random() < 0.15:
            return Printed(
                f"no crontab for {self._make.word()}",
                "You do not have any cron jobs.",
                "Du hast keine Cronjobs.",
                code=1,
            )
        line = f"{self._rng.randint(0, 59)} {self._rng.randint(0, 23)} * * * {self._make.path()}"
        return Printed(line, f"There is one cron job: {line}", f"Es gibt einen Cronjob: {line}")

    def _one_lsblk(self, _rest: list[str], _language: str) -> Printed:
        first, second = self._rng.randint(100, 2000), self._rng.randint(100, 2000)
        return Printed(
            f"NAME SIZE TYPE MOUNTPOINT\nsda {first}G disk /\nsdb {second}G disk /data",
            f"There are two disks: sda with {first}G and sdb with {second}G.",
            f"Es gibt zwei Platten: sda mit {first}G und sdb mit {second}G.",
        )

    def _one_nproc(self, _rest: list[str], _language: str) -> Printed:
        count = self._rng.choice([2, 4, 6, 8, 12, 16, 24, 32])
        return Printed(str(count), f"There are {count} CPU cores.", f"Es sind {count} CPU-Kerne.")

    def _one_sha256sum(self, rest: list[str], _language: str) -> Printed:
        digest, name = f"{self._rng.getrandbits(128):032x}", rest[-1] if rest else "-"
        return Printed(
            f"{digest}  {name}",
            f"The checksum of {name} is {digest}.",
            f"Die Prüfsumme von {name} ist {digest}.",
        )

    def _one_which(self, rest: list[str], _language: str) -> Printed | None:
        if len(rest) != 1:
            return None
        if self._rng.random() < 0.2:
            return Printed(
                "(no output)",
                f"{rest[0]} is not installed here.",
                f"{rest[0]} ist hier nicht installiert.",
                code=1,
            )
        path = f"{self._rng.choice(['/usr/bin', '/usr/local/bin', '/opt/bin'])}/{rest[0]}"
        return Printed(path, f"{rest[0]} is at {path}.", f"{rest[0]} liegt in {path}.")

    def _one_printenv(self, rest: list[str], _language: str) -> Printed | None:
        if len(rest) != 1:
            return None
        if self._rng.random() < 0.15:
            return Printed(
                "(no output)", f"{rest[0]} is not set.", f"{rest[0]} ist nicht gesetzt.", code=1
            )
        value = self._rng.choice([self._make.word(), self._make.path()])
        if rest[0] == "SHELL":
            value = self._rng.choice(["/bin/bash", "/usr/bin/zsh", "/usr/bin/fish", "/bin/sh"])
        return Printed(value, f"{rest[0]} is {value}.", f"{rest[0]} ist {value}.")

    def _one_wc(self, rest: list[str], _language: str) -> Printed | None:
        if len(rest) != 2 or rest[0] not in {"-l", "-w", "-c", "-m"}:
            return None
        count, name = self._rng.randint(2, 9000), rest[1]
        english, german = {
            "-l": ("lines", "Zeilen"),
            "-w": ("words", "Wörter"),
            "-c": ("bytes", "Bytes"),
            "-m": ("characters", "Zeichen"),
        }[rest[0]]
        return Printed(
            f"{count} {name}",
            f"{name} has {count} {english}.",
            f"{name} hat {count} {german}.",
            str(count),
        )

    def _one_curl(self, rest: list[str], _language: str) -> Printed | None:
        if rest[-1:] == ["https://ifconfig.me"]:
            address = ".".join(str(self._rng.randint(2, 250)) for _ in range(4))
            return Printed(
                address,
                f"Your public address is {address}.",
                f"Deine öffentliche Adresse ist {address}.",
            )
        if rest[:1] == ["-LO"] and len(rest) == 2:
            name = rest[1].rsplit("/", 1)[-1]
            return Printed("(no output)", f"Downloaded {name}.", f"{name} ist heruntergeladen.")
        if rest[:1] != ["-I"]:
            return None
        status = self._rng.choice(["200 OK", "200 OK", "301 Moved Permanently", "404 Not Found"])
        return Printed(
            f"HTTP/1.1 {status}\nServer: nginx\nContent-Type: text/html",
            f"The server answers with {status}.",
            f"Der Server antwortet mit {status}.",
        )

    def _one_nvidia_smi(self, _rest: list[str], _language: str) -> Printed:
        share, used = self._rng.randint(0, 100), self._rng.randint(300, 15000)
        card = self._rng.choice(["RTX 3060", "RTX 4090", "Tesla T4", "A100"])
        return Printed(
            f"GPU 0: {card}  {share}% util  {used}MiB / 16384MiB",
            f"The {card} is {share}% busy and uses {used}MiB of 16384MiB.",
            f"Die {card} ist zu {share} % ausgelastet und nutzt {used}MiB von 16384MiB.",
        )

    # projects

    def _pip(self, rest: list[str], _language: str) -> Printed | None:
        names = [self._make.word() for _ in range(self._rng.randint(2, 3))]
        pairs = [f"{name} {self._version()}" for name in dict.fromkeys(names)]
        both = _and(pairs)
        match rest:
            case ["list"]:
                return Printed(
                    "\n".join(["Package Version", *pairs]),
                    f"Installed are {both[0]}.",
                    f"Installiert sind {both[1]}.",
                )
            case ["show", name]:
                version = self._version()
                return Printed(
                    f"Name: {name}\nVersion: {version}\nSummary: {self._make.fragment(2, 5)}",
                    f"{name} is installed in version {version}.",
                    f"{name} ist in Version {version} installiert.",
                )
            case ["freeze", ">", name]:
                return Printed(
                    "(no output)",
                    f"The installed packages now stand in {name}.",
                    f"Die installierten Pakete stehen jetzt in {name}.",
                )
            case ["install", "-U", name]:
                version = self._version()
                return Printed(
                    f"Successfully installed {name}-{version}",
                    f"{name} is now at version {version}.",
                    f"{name} ist jetzt in Version {version} da.",
                )
            case ["install", "-r", name]:
                done = " ".join(pair.replace(" ", "-") for pair in pairs)
                return Printed(
                    f"Successfully installed {done}",
                    f"Installed what {name} asks for: {both[0]}.",
                    f"Aus {name} installiert: {both[1]}.",
                )
            case ["list", "--outdated"]:
                name, old, new = names[0], self._version(), self._version()
                return Printed(
                    f"Package Version Latest\n{name} {old} {new}",
                    f"{name} is outdated: {old} is installed, {new} is the latest.",
                    f"{name} ist veraltet: {old} ist installiert, {new} ist die neueste.",
                )
            case ["uninstall", *_, name]:
                version = self._version()
                return Printed(
                    f"Successfully uninstalled {name}-{version}",
                    f"Uninstalled {name} {version}.",
                    f"{name} {version} ist deinstalliert.",
                )
            case _:
                return None

    def _tests(self, rest: list[str], _language: str) -> Printed:
        rng, passed = self._rng, self._rng.randint(2, 400)
        if rest == ["--cov"]:
            share = rng.randint(12, 100)
            return Printed(
                f"TOTAL  {passed * 30}  {share}%\n{passed} passed in {passed}.12s",
                f"All {passed} tests passed; they cover {share}%.",
                f"Alle {passed} Tests sind durchgelaufen; sie decken {share} % ab.",
            )
        seconds = f"{rng.randint(10, 9000) / 100:.2f}s"
        if rng.random() < 0.55:
            return Printed(
                f"{'.' * min(passed, 40)}\n{passed} passed in {seconds}",
                f"All {passed} tests passed in {seconds}.",
                f"Alle {passed} Tests sind durchgelaufen, in {seconds}.",
            )
        count = rng.randint(1, 2)
        module = self._make.word()
        names = list(dict.fromkeys(f"test_{self._make.word()}" for _ in range(count)))
        both, count = _and(names), len(names)
        rows = [f"FAILED tests/test_{module}.py::{name}" for name in names]
        return Printed(
            "\n".join([*rows, f"{count} failed, {passed} passed in {seconds}"]),
            f"The tests did not pass: {count} failed, {passed} passed. Failed: {both[0]}.",
            f"Die Tests sind nicht durchgelaufen: {count} fehlgeschlagen, {passed} bestanden. "
            f"Fehlgeschlagen: {both[1]}.",
            code=1,
        )

    def _npm(self, rest: list[str], _language: str) -> Printed | None:
        rng, passed = self._rng, self._rng.randint(2, 200)
        match rest:
            case ["test"]:
                failed = rng.choice([0, 0, rng.randint(1, 5)])
                first = f"{failed} failed, " if failed else ""
                return Printed(
                    f"Tests: {first}{passed} passed, {passed + failed} total",
                    f"The tests did not pass: {failed} failed, {passed} passed."
                    if failed
                    else f"All {passed} tests passed.",
                    f"Die Tests sind nicht durchgelaufen: {failed} fehlgeschlagen, "
                    f"{passed} bestanden."
                    if failed
                    else f"Alle {passed} Tests sind bestanden.",
                    code=int(failed > 0),
                )
            case ["run", name]:
                word = self._make.word()
                if rng.random() < 0.2:
                    return Printed(
                        f"> {word} {name}\nERROR: {word}.js failed",
                        f"{name} did not work: ERROR: {word}.js failed",
                        f"{name} hat nicht geklappt: ERROR: {word}.js failed",
                        code=1,
                    )
                seconds = f"{rng.randint(1, 900) / 10}s"
                return Printed(
                    f"> {word}@{self._version()} {name}\ndone in {seconds}",
                    f"{name} ran through, in {seconds}.",
                    f"{name} lief durch, in {seconds}.",
                )
            case ["outdated"]:
                name, old, new = self._make.word(), self._version(), self._version()
                return Printed(
                    f"Package  Current  Wanted  Latest\n{name}  {old}  {new}  {new}",
                    f"{name} is outdated: {old} is installed, {new} is the latest.",
                    f"{name} ist veraltet: {old} ist installiert, {new} ist die neueste.",
                )
            case ["install"] | ["install", _]:
                return Printed(
                    f"added {passed} packages in {rng.randint(1, 40)}s",
                    f"Installed; {passed} packages were added.",
                    f"Installiert; {passed} Pakete kamen dazu.",
                )
            case _:
                return None

    def _cargo(self, rest: list[str], _language: str) -> Printed | None:
        rng, passed = self._rng, self._rng.randint(2, 300)
        if rest[:1] == ["test"]:
            failed = rng.choice([0, 0, rng.randint(1, 5)])
            state = "FAILED" if failed else "ok"
            return Printed(
                f"test result: {state}. {passed} passed; {failed} failed; 0 ignored",
                f"The tests did not pass: {failed} failed, {passed} passed."
                if failed
                else f"All {passed} tests passed.",
                f"Die Tests sind nicht durchgelaufen: {failed} fehlgeschlagen, {passed} bestanden."
                if failed
                else f"Alle {passed} Tests sind bestanden.",
                code=101 if failed else 0,
            )
        if rest[:1] == ["clippy"]:
            return self._linted(rest, _language)
        if rest[:1] == ["fmt"]:
            return Printed("(no output)", "The code is formatted.", "Der Code ist formatiert.")
        if rest[:1] == ["build"]:
            seconds = f"{rng.randint(1, 300)}.{rng.randint(0, 99):02d}s"
            return Printed(
                f"Compiling {self._make.word()} v{self._version()}\nFinished dev in {seconds}",
                f"It was built in {seconds}.",
                f"Der Build ist fertig, in {seconds}.",
            )
        return None

    def _built(self, _rest: list[str], _language: str) -> Printed:
        name = f"{self._make.word()}-{self._version()}.tar.gz"
        if self._rng.random() < 0.5:
            return Printed(
                f"python -m build\nSuccessfully built {name}",
                f"Successfully built {name}.",
                f"{name} ist gebaut.",
            )
        source = f"{self._make.word()}.c"
        return Printed(
            f"cc -O2 -c {source}\ncc -o {source[:-2]} {source[:-2]}.o",
            f"make went through; it built {source[:-2]}.",
            f"make lief durch; {source[:-2]} ist gebaut.",
        )

    def _linted(self, rest: list[str], language: str) -> Printed | None:
        if rest[:1] == ["format"] or rest[:2] == ["prettier", "--write"]:
            return self._formatted(rest, language)
        if rest[:1] not in (["check"], ["clippy"], ["eslint"]):
            return None
        if self._rng.random() < 0.45:
            said = "The linter found nothing.", "Der Linter hat nichts gefunden."
            return Printed("All checks passed!", *said)
        name, number = self._names(1, 1)[0], self._rng.randint(1, 400)
        what = self._rng.choice(
            [
                f"`{self._make.word()}` imported but unused",
                f"unused variable `{self._make.word()}`",
                "line too long",
                "missing return type",
            ]
        )
        return Printed(
            f"{name}:{number}:5: {what}\nFound 1 error.",
            f"The linter is not content: in {name}, line {number}: {what}.",
            f"Der Linter ist nicht zufrieden: in {name}, Zeile {number}: {what}.",
            code=1,
        )

    def _typed(self, _rest: list[str], _language: str) -> Printed:
        count = self._rng.randint(2, 200)
        if self._rng.random() < 0.5:
            return Printed(
                f"Success: no issues found in {count} source files",
                f"mypy found no issues in {count} files.",
                f"mypy hat in {count} Dateien nichts gefunden.",
            )
        name, number = f"{self._make.word()}.py", self._rng.randint(1, 400)
        what = self._rng.choice(
            [
                f'Name "{self._make.word()}" is not defined',
                'Incompatible return value type (got "int", expected "str")',
                "Missing return statement",
            ]
        )
        return Printed(
            f"{name}:{number}: error: {what}\nFound 1 error in 1 file",
            f"mypy did not pass: in {name}, line {number}: {what}",
            f"mypy ist nicht zufrieden: in {name}, Zeile {number}: {what}",
            code=1,
        )

    def _formatted(self, _rest: list[str], _language: str) -> Printed:
        count, others = self._rng.randint(2, 30), self._rng.randint(2, 90)
        return Printed(
            f"{count} files reformatted, {others} files left unchanged",
            f"{count} files were reformatted, {others} were fine.",
            f"{count} Dateien wurden formatiert, {others} waren schon in Ordnung.",
        )

    def _go(self, rest: list[str], _language: str) -> Printed | None:
        name = f"{self._make.word()}/{self._make.word()}"
        seconds = f"{self._rng.randint(1, 900) / 100}s"
        if rest == ["build", "./..."]:
            return Printed("(no output)", "It was built.", "Der Build ist fertig.")
        if rest != ["test", "./..."]:
            return None
        if self._rng.random() < 0.6:
            return Printed(
                f"ok  {name}  {seconds}",
                f"The tests of {name} passed.",
                f"Die Tests von {name} sind bestanden.",
            )
        test = f"Test{self._make.word().capitalize()}"
        return Printed(
            f"--- FAIL: {test}\nFAIL  {name}  {seconds}",
            f"{test} did not pass, in {name}.",
            f"{test} ist nicht bestanden, in {name}.",
            code=1,
        )

    # more of the machine

    def _one_diff(self, rest: list[str], _language: str) -> Printed | None:
        """What differs between two files, or two folders."""
        if len(rest) not in {2, 3} or (len(rest) == 3 and rest[0] != "-rq"):
            return None
        one, other = rest[-2:]
        if self._rng.random() < 0.3:
            return Printed(
                "(no output)", f"{one} and {other} are the same.", f"{one} und {other} sind gleich."
            )
        name = self._names(1, 1)[0]
        if len(rest) == 3 and self._rng.random() < 0.5:
            where = self._rng.choice([one, other])
            return Printed(
                f"Only in {where}: {name}",
                f"They are not the same: {name} is only in {where}.",
                f"Sie sind nicht gleich: {name} gibt es nur in {where}.",
                code=1,
            )
        if len(rest) == 3:
            return Printed(
                f"Files {one}/{name} and {other}/{name} differ",
                f"They are not the same: {name} differs.",
                f"Sie sind nicht gleich: {name} unterscheidet sich.",
                code=1,
            )
        number, old, new = self._rng.randint(1, 300), self._make.words(1, 3), self._make.words(1, 3)
        return Printed(
            f"{number}c{number}\n< {old}\n---\n> {new}",
            f"They are not the same: in line {number} {one} has {old}, {other} has {new}.",
            f"Sie sind nicht gleich: in Zeile {number} hat {one} {old}, {other} {new}.",
            code=1,
        )

    def _opened(self, rest: list[str], _language: str) -> Printed | None:
        """Who has a port or a file, and who had it."""
        number, port = self._rng.randint(300, 99999), rest[-1].lstrip(":")
        if rest[:1] == ["-k"]:
            port = port.partition("/")[0]
            return Printed(
                f"{port}/tcp: {number}",
                f"Ended the process {number}, which had port {port}.",
                f"Der Prozess {number}, der Port {port} belegt hatte, ist beendet.",
            )
        name = self._process()
        if rest[:1] != ["-i"]:
            return Printed(
                f"COMMAND PID USER NAME\n{name} {number} user {rest[-1]}",
                f"{name} has it open (process {number}).",
                f"{name} hat sie offen (Prozess {number}).",
            )
        if self._rng.random() < 0.15:
            nobody = f"Port {port} is not in use.", f"Port {port} ist nicht belegt."
            return Printed("(no output)", *nobody, code=1)
        return Printed(
            f"COMMAND PID USER TYPE NAME\n{name} {number} user IPv4 TCP *:{port} (LISTEN)",
            f"{name} has port {port} (process {number}).",
            f"{name} belegt Port {port} (Prozess {number}).",
        )

    def _one_ss(self, _rest: list[str], _language: str) -> Printed:
        ports = self._rng.sample([22, 80, 443, 631, 3000, 3306, 5432, 6379, 8000, 8080], 3)
        names = self._processes(3)
        rows = [f"LISTEN 0.0.0.0:{port} {name}" for port, name in zip(ports, names, strict=False)]
        told = [f"{port} ({name})" for port, name in zip(ports, names, strict=False)]
        both = _and(told)
        return Printed("\n".join(rows), f"Open are {both[0]}.", f"Offen sind {both[1]}.")

    def _one_pgrep(self, rest: list[str], _language: str) -> Printed:
        name, number = rest[-1], self._rng.randint(300, 99999)
        if self._rng.random() < 0.35:
            return Printed("(no output)", f"{name} is not running.", f"{name} läuft nicht.", code=1)
        return Printed(
            f"{number} {name}",
            f"{name} is running as process {number}.",
            f"{name} läuft als Prozess {number}.",
        )

    def _one_groups(self, _rest: list[str], _language: str) -> Printed:
        named = ["adm", "sudo", "docker", "users", "audio", "video", "plugdev"]
        listed = [self._make.word(), *self._rng.sample(named, self._rng.randint(1, 3))]
        english, german = _and(listed)
        return Printed(" ".join(listed), f"You are in {english}.", f"Du bist in {german}.")

    def _one_nc(self, rest: list[str], _language: str) -> Printed | None:
        """Of `nc -zv HOST PORT`: whether the port is open."""
        if rest[:1] != ["-zv"] or len(rest) != 3:
            return None
        host, port = rest[1:]
        if self._rng.random() < 0.35:
            return Printed(
                f"nc: connect to {host} port {port} (tcp) failed: Connection refused",
                f"Port {port} on {host} is not open.",
                f"Port {port} auf {host} ist nicht offen.",
                code=1,
            )
        return Printed(
            f"Connection to {host} {port} port [tcp/*] succeeded!",
            f"Port {port} on {host} is open.",
            f"Port {port} auf {host} ist offen.",
        )

    def _one_kill(self, rest: list[str], _language: str) -> Printed:
        return Printed(
            "(no output)", f"Ended process {rest[-1]}.", f"Prozess {rest[-1]} ist beendet."
        )

    def _cat(self, rest: list[str], language: str) -> Printed | None:
        """A file; some are known by what they hold."""
        match rest:
            case ["/sys/class/power_supply/BAT0/capacity"]:
                share = self._rng.randint(2, 100)
                return Printed(
                    str(share), f"The battery is at {share}%.", f"Der Akku ist bei {share} %."
                )
            case ["/etc/os-release"]:
                name = self._rng.choice(
                    [
                        f"Ubuntu {self._rng.randint(18, 26)}.04 LTS",
                        f"Debian GNU/Linux {self._rng.randint(10, 14)}",
                        f"Fedora Linux {self._rng.randint(38, 46)}",
                        "Arch Linux",
                    ]
                )
                return Printed(f'PRETTY_NAME="{name}"', f"It is {name}.", f"Es ist {name}.")
            case ["~/.ssh/id_ed25519.pub"]:
                key = f"ssh-ed25519 AAAAC3NzaC1{self._rng.getrandbits(64):016x} {self._make.word()}"
                return Printed(
                    key, f"Your public key is {key}", f"Dein öffentlicher Schlüssel ist {key}"
                )
            case _:
                return self._lines(rest, language)

    def _one_dmesg(self, _rest: list[str], _language: str) -> Printed:
        line = f"[{self._rng.randint(1, 99999)}.{self._rng.randint(0, 999999):06d}] " + (
            self._rng.choice(
                [
                    "usb 1-2: new high-speed USB device number 4",
                    "EXT4-fs (sdb1): mounted filesystem",
                    f"Out of memory: Killed process {self._rng.randint(300, 9999)}",
                    "wlan0: associated",
                    "CPU0: Package temperature above threshold",
                ]
            )
        )
        return Printed(line, f"The kernel says: {line}", f"Der Kernel sagt: {line}")

    def _one_cut(self, rest: list[str], _language: str) -> Printed | None:
        if rest[-1:] != ["/etc/passwd"]:
            return None
        names = ["root", "daemon", self._make.word(), self._make.word()]
        both = _and(list(dict.fromkeys(names)))
        return Printed(
            "\n".join(dict.fromkeys(names)),
            f"The accounts are {both[0]}.",
            f"Die Konten sind {both[1]}.",
        )

    def _one_env(self, rest: list[str], _language: str) -> Printed | None:
        if rest:
            return None
        name = self._make.word()
        rows = [f"HOME=/home/{name}", "SHELL=/bin/bash", f"{self._make.word().upper()}=1"]
        both = _and([row.partition("=")[0] for row in rows])
        return Printed("\n".join(rows), f"Set are {both[0]}.", f"Gesetzt sind {both[1]}.")

    def _one_ssh_keygen(self, rest: list[str], _language: str) -> Printed | None:
        path = rest[-1]
        return Printed(
            f"Your public key has been saved in {path}.pub",
            f"The new key is in {path}, its public part in {path}.pub.",
            f"Der neue Schlüssel liegt in {path}, sein öffentlicher Teil in {path}.pub.",
        )

    def _one_python3(self, rest: list[str], _language: str) -> Printed | None:
        if rest == ["manage.py", "migrate"]:
            name = f"{self._make.word()}.0002_{self._make.word()}"
            return Printed(
                f"Running migrations:\n  Applying {name}... OK",
                f"Applied the migration {name}.",
                f"Die Migration {name} ist angewendet.",
            )
        if rest[:2] != ["-m", "venv"]:
            return None
        return Printed(
            "(no output)",
            f"The virtual environment is in {rest[-1]}.",
            f"Die virtuelle Umgebung liegt in {rest[-1]}.",
        )

    def _one_lscpu(self, _rest: list[str], _language: str) -> Printed:
        name = self._rng.choice(
            ["AMD Ryzen 7 5800X", "Intel(R) Core(TM) i5-8250U", "AMD EPYC 7763", "Cortex-A72"]
        )
        count = self._rng.choice([2, 4, 8, 16, 32])
        return Printed(
            f"Architecture: x86_64\nCPU(s): {count}\nModel name: {name}",
            f"It is an {name} with {count} CPUs."
            if name[0] in "AI"
            else f"It is a {name} with {count} CPUs.",
            f"Es ist ein {name} mit {count} CPUs.",
        )

    def _one_sensors(self, _rest: list[str], _language: str) -> Printed:
        warm = f"{self._rng.randint(280, 980) / 10}°C"
        return Printed(
            f"coretemp-isa-0000\nPackage id 0: +{warm} (high = +100.0°C)",
            f"The CPU is at {warm}.",
            f"Die CPU hat {warm}.",
        )

    def _one_who(self, _rest: list[str], _language: str) -> Printed:
        names = [name.lower() for name in self._rng.sample(_AUTHORS, self._rng.randint(1, 3))]
        both, is_one = _and(names), len(names) == 1
        return Printed(
            "\n".join(f"{name} pts/{index} {self._day()}" for index, name in enumerate(names)),
            f"{both[0]} {'is' if is_one else 'are'} logged in.",
            f"{both[1]} {'ist' if is_one else 'sind'} angemeldet.",
        )

    def _one_lsusb(self, _rest: list[str], _language: str) -> Printed:
        every = ["Logitech Receiver", "SanDisk Ultra", "Webcam C920", "Yubikey 5", "USB Keyboard"]
        names = self._rng.sample(every, self._rng.randint(1, 3))
        both = _and(names)
        return Printed(
            "\n".join(f"Bus 001 Device 00{index + 2}: {name}" for index, name in enumerate(names)),
            f"Connected: {both[0]}.",
            f"Angeschlossen: {both[1]}.",
        )

    def _one_findmnt(self, _rest: list[str], _language: str) -> Printed:
        other = self._rng.choice(["/home", "/data", "/mnt/backup", "/media/usb"])
        return Printed(
            f"TARGET SOURCE FSTYPE\n/ /dev/nvme0n1p2 ext4\n{other} /dev/sdb1 ext4",
            f"Mounted are / (/dev/nvme0n1p2) and {other} (/dev/sdb1).",
            f"Eingehängt sind / (/dev/nvme0n1p2) und {other} (/dev/sdb1).",
        )

    def _one_dig(self, rest: list[str], _language: str) -> Printed:
        address = ".".join(str(self._rng.randint(2, 250)) for _ in range(4))
        return Printed(
            address,
            f"{rest[-1]} has the address {address}.",
            f"{rest[-1]} hat die Adresse {address}.",
        )

    def _one_nmcli(self, _rest: list[str], _language: str) -> Printed:
        name = self._rng.choice([self._make.word(), f"FRITZ!Box {self._rng.randint(1000, 7999)}"])
        return Printed(
            f"DEVICE TYPE STATE CONNECTION\nwlan0 wifi connected {name}\nlo loopback unmanaged --",
            f"wlan0 is connected to {name}.",
            f"wlan0 ist mit {name} verbunden.",
        )

    def _day_told(self, rest: list[str]) -> Printed | None:
        """A day counted from now, or the weekday of one."""
        match rest:
            case ["-d", when, "+%F"] if when.split()[0].isdigit():
                start = date(self._rng.randint(2025, 2029), 1, 1)
                day = start + timedelta(days=self._rng.randint(0, 364))
                count = int(when.split()[0]) * (7 if "week" in when else 1)
                day += timedelta(days=-count if "ago" in when else count)
                verb = ("was", "war") if "ago" in when else ("will be", "ist")
                return Printed(f"{day}", f"That {verb[0]} {day}.", f"Das {verb[1]} der {day}.")
            case ["+%V"]:
                week = f"{self._rng.randint(1, 52):02d}"
                return Printed(week, f"It is week {week}.", f"Es ist Kalenderwoche {week}.")
            case ["+%s"]:
                seconds = self._rng.randint(1_700_000_000, 1_999_999_999)
                return Printed(
                    f"{seconds}", f"The unix time is {seconds}.", f"Die Unix-Zeit ist {seconds}."
                )
            case ["-d", when, "+%F %T"] if when[1:].isdigit():
                stamp = datetime.fromtimestamp(int(when[1:]), UTC).strftime("%Y-%m-%d %H:%M:%S")
                return Printed(stamp, f"{when[1:]} is {stamp}.", f"{when[1:]} ist {stamp}.")
            case ["-d", when, "+%A"] if re.fullmatch(r"\d{4}-\d\d-\d\d", when):
                at = date.fromisoformat(when).weekday()
                english, german = WEEKDAYS[at], GERMAN_DAYS[at]
                return Printed(english, f"{when} is a {english}.", f"Der {when} ist ein {german}.")
            case _:
                return None

    def _one_echo(self, rest: list[str], _language: str) -> Printed | None:
        """What base64 makes of a word, and the other way round."""
        match rest:
            case ["-n", text, "|", "base64"]:
                code = base64.b64encode(text.encode()).decode()
                return Printed(
                    code, f"{text} in base64 is {code}.", f"{text} ist in Base64 {code}."
                )
            case [code, "|", "base64", "-d"]:
                try:
                    text = base64.b64decode(code, validate=True).decode()
                except (binascii.Error, UnicodeDecodeError):
                    return None
                return Printed(text, f"It says {text}.", f"Da steht {text}.")
            case _:
                text = " ".join(rest)
                if not text or set(text) & set("$>|<;&-"):
                    return None
                return Printed(text, f"The command printed: {text}", f"Der Befehl ergab: {text}")

    def _apt(self, rest: list[str], _language: str) -> Printed | None:
        match rest:
            case ["list", "--upgradable"]:
                names = list(dict.fromkeys(self._make.word() for _ in range(3)))
                both = _and(names)
                return Printed(
                    "\n".join(f"{name}/stable {self._version()} amd64" for name in names),
                    f"{both[0]} can be upgraded.",
                    f"{both[1]} lassen sich aktualisieren.",
                )
            case _:
                return None

    def _one_traceroute(self, rest: list[str], _language: str) -> Printed:
        first, time = self._address(), f"{self._rng.randint(10, 900) / 10}"
        return Printed(
            f"traceroute to {rest[-1]}\n 1  {first}  0.4 ms\n 2  {rest[-1]}  {time} ms",
            f"{rest[-1]} is reached after 2 hops, by {first}, in {time} ms.",
            f"{rest[-1]} ist nach 2 Hops erreicht, über {first}, in {time} ms.",
        )

    def _one_openssl(self, rest: list[str], _language: str) -> Printed | None:
        if rest[:2] != ["rand", "-base64"]:
            return None
        text = base64.b64encode(self._rng.randbytes(16)).decode()
        return Printed(text, f"Here is one: {text}", f"Hier ist eins: {text}")

    def _one_uuidgen(self, _rest: list[str], _language: str) -> Printed:
        code = f"{self._rng.getrandbits(128):032x}"
        code = f"{code[:8]}-{code[8:12]}-{code[12:16]}-{code[16:20]}-{code[20:]}"
        return Printed(code, f"A new UUID: {code}", f"Eine neue UUID: {code}")

    def _one_cal(self, _rest: list[str], _language: str) -> Printed:
        first = date(self._rng.randint(2025, 2030), self._rng.randint(1, 12), 1)
        shown = TextCalendar(SUNDAY).formatmonth(first.year, first.month).rstrip()
        month, at = shown.split("\n")[0].strip(), first.weekday()
        return Printed(
            shown,
            f"The calendar shows {month}; the 1st is a {WEEKDAYS[at]}.",
            f"Der Kalender zeigt {month}; der 1. ist ein {GERMAN_DAYS[at]}.",
        )

    def _one_last(self, _rest: list[str], _language: str) -> Printed:
        name, day = self._rng.choice(_AUTHORS).lower(), self._day()
        return Printed(
            f"{name} pts/0 {self._address()} {day}   still logged in",
            f"{name} logged in last, at {day}.",
            f"{name} hat sich zuletzt angemeldet, am {day}.",
        )

    def _one_jq(self, rest: list[str], _language: str) -> Printed | None:
        if len(rest) != 2 or rest[0] != ".":
            return None
        word, value = self._make.word(), self._rng.randint(1, 999)
        return Printed(
            f'{{\n  "{word}": {value}\n}}',
            f"{rest[1]} has {word}: {value}",
            f"{rest[1]} hat {word}: {value}",
        )

    def _one_ffmpeg(self, rest: list[str], _language: str) -> Printed | None:
        if rest[:1] != ["-i"] or len(rest) != 3:
            return None
        return Printed(
            f"size={self._rng.randint(100, 9000)}KiB time=00:03:12",
            f"Converted {rest[1]} to {rest[2]}.",
            f"{rest[1]} ist nach {rest[2]} umgewandelt.",
        )

    def _one_sudo(self, rest: list[str], _language: str) -> Printed | None:
        match rest:
            case ["apt", "install", "-y", name]:
                return Printed(
                    f"Setting up {name} ({self._version()}) ...",
                    f"{name} is installed.",
                    f"{name} ist installiert.",
                )
            case ["apt", "remove", "-y", name]:
                return Printed(
                    f"Removing {name} ({self._version()}) ...",
                    f"{name} is removed.",
                    f"{name} ist entfernt.",
                )
            case ["apt", "update"]:
                count = self._rng.randint(0, 90)
                return Printed(
                    f"Reading package lists... Done\n{count} packages can be upgraded.",
                    f"The lists are fresh; {count} packages can be upgraded.",
                    f"Die Listen sind aktuell; {count} Pakete haben Updates.",
                )
            case ["apt", "upgrade", "-y"]:
                count = self._rng.randint(0, 90)
                return Printed(
                    f"{count} upgraded, 0 newly installed, 0 to remove and 0 not upgraded.",
                    f"{count} packages were upgraded.",
                    f"{count} Pakete wurden aktualisiert.",
                )
            case _:
                return None

    # files

    def _one_unzip(self, rest: list[str], _language: str) -> Printed | None:
        names, name = self._names(1, 2), rest[-1]
        if rest[:1] == ["-l"]:
            both = _and(names)
            rows = [f"{self._rng.randint(10, 99999)}  {each}" for each in names]
            return Printed(
                "\n".join(rows), f"{name} holds {both[0]}.", f"{name} enthält {both[1]}."
            )
        rows = [f"  inflating: {each}" for each in names]
        return Printed("\n".join(rows), f"Unpacked {name}.", f"{name} ist entpackt.")

    def _one_tar(self, rest: list[str], _language: str) -> Printed | None:
        if rest[:1] != ["-tzf"]:
            return None
        names = self._names(1, 3)
        both, name = _and(names), rest[-1]
        return Printed("\n".join(names), f"{name} holds {both[0]}.", f"{name} enthält {both[1]}.")

    def _ls(self, rest: list[str], _language: str) -> Printed | None:
        rng = self._rng
        if "|" in rest:
            return self._ls_piped(rest)
        options = "".join(word[1:] for word in rest if word.startswith("-"))
        if options == "l" and len(rest) == 2:
            mode = rng.choice(["-rw-r--r--", "-rw-------", "-rwxr-xr-x", "-r--r--r--"])
            user = rng.choice(["root", "user", self._make.word()])
            return Printed(
                f"{mode} 1 {user} {user} {rng.randint(10, 99999)} {self._day()} {rest[1]}",
                f"{rest[1]} has {mode} and belongs to {user}.",
                f"{rest[1]} hat {mode} und gehört {user}.",
            )
        if rest == ["-d", "*/"]:
            names = sorted({f"{self._make.name()}/" for _ in range(rng.choice([1, 2, 3, 4, 5]))})
            both = _and(names)
            return Printed(
                "\n".join(names), f"There {_are(names)} {both[0]}.", f"Hier gibt es {both[1]}."
            )
        names = self._names(2, 4)
        folders = [name for name in rest if not name.startswith("-")]
        if "a" in options:
            hidden = rng.sample(_HIDDEN, rng.choice([1, 1, 2]))
            if "l" in options:
                return self._ls_long([hidden[0], *names[: rng.choice([1, 1, 2])]], options)
            return self._ls_all(hidden, names, folders)
        if options in {"l", "lh"}:
            return self._ls_long(names[: rng.choice([2, 2, 3])], options)
        both = _and(names)
        told = Printed("\n".join(names), f"There are {both[0]}.", f"Hier liegen {both[1]}.")
        if "l" not in options:
            return told
        sizes = [rng.randint(10, 99999) for _ in names]
        if "S" in options:
            sizes.sort(reverse=True)
        day = rng.randint(15, 28)
        rows = []
        for index, (name, size) in enumerate(zip(names, sizes, strict=True)):
            stamp = f"Mar {day - 2 * index} {rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
            rows.append(f"-rw-r--r-- 1 user user {size} {stamp} {name}")
        result = "\n".join(rows)
        if "S" in options:
            then, danach = _next(names[1:])
            return Printed(
                result,
                f"The biggest is {names[0]} with {sizes[0]} bytes{then}.",
                f"Am größten ist {names[0]} mit {sizes[0]} Bytes{danach}.",
                names[0],
            )
        if "t" in options:
            then, danach = _next(names[1:])
            return Printed(
                result,
                f"The newest is {names[0]}{then}.",
                f"Am neuesten ist {names[0]}{danach}.",
                names[0],
            )
        return told._replace(result=result)

    def _ls_piped(self, rest: list[str]) -> Printed | None:
        """Return how many files there are, or the first few of them."""
        rng = self._rng
        match rest:
            case ["|", "wc", "-l"]:
                count = rng.randint(2, 400)
                return Printed(
                    str(count), f"There are {count} files here.", f"Hier liegen {count} Dateien."
                )
            case ["-d", "*/", "|", "wc", "-l"]:
                count = rng.randint(2, 60)
                return Printed(
                    str(count), f"There are {count} folders here.", f"Hier gibt es {count} Ordner."
                )
            case [folder, "|", "wc", "-l"]:
                count = rng.randint(2, 400)
                return Printed(
                    str(count), f"{folder} has {count} files.", f"{folder} hat {count} Dateien."
                )
            case ["-t" | "-S" as option, "|", "head", "-n", wanted]:
                names = self._names(2, 5)[: int(wanted)]
                both = _and(names)
                english, german = {"-t": ("newest", "neuesten"), "-S": ("biggest", "größten")}[
                    option
                ]
                return Printed(
                    "\n".join(names),
                    f"The {english} first: {both[0]}.",
                    f"Am {german} zuerst: {both[1]}.",
                    names[0],
                )
            case _:
                return None

    def _ls_all(self, hidden: list[str], names: list[str], folders: list[str]) -> Printed:
        """Return names with those that are hidden, which are told first."""
        both, others = _and(hidden), _and(names)
        are, sind = ("is", "ist") if len(hidden) == 1 else ("are", "sind")
        where, wo = ("here", "hier") if not folders else (f"in {folders[0]}", f"in {folders[0]}")
        dots = [".", ".."] if self._rng.random() < 0.5 else []
        return Printed(
            "\n".join([*dots, *hidden, *names]),
            f"Hidden {where} {are} {both[0]}; besides there {_are(names)} {others[0]}.",
            f"Versteckt {sind} {wo} {both[1]}; sonst gibt es {others[1]}.",
        )

    def _ls_long(self, names: list[str], options: str) -> Printed:
        """Return names with rights, owner, size and date; each is told with all of it."""
        rng = self._rng
        owner = rng.choice(["anna", "tom", "root", "user", "www-data", self._make.word()])
        rows, told, in_short = [], [], "h" in options
        for name in names:
            is_folder = name in _HIDDEN_FOLDERS
            who = "root" if rng.random() < 0.15 else owner
            mode = rng.choice(_FOLDER_MODES if is_folder else _FILE_MODES)
            size = "4096" if is_folder else str(rng.randint(10, 99999))
            if in_short:
                size = f"{rng.randint(1, 900)}{rng.choice('KKM')}"
            day = self._day()
            rows.append(f"{mode} {2 if is_folder else 1} {who} {who} {size} {day} {name}")
            told.append((name, mode, who, size, day))
        dots = []
        if "a" in options and len(names) == 2 and rng.random() < 0.4:
            dots = [
                f"drwxr-xr-x 2 {owner} {owner} 4096 {self._day()} {name}" for name in (".", "..")
            ]
        is_told = dots or (len(names) > 1 and rng.random() < 0.5)
        head = [f"total {rng.randint(4, 900)}"] if is_told else []
        unit = "" if in_short else " bytes"
        lines = [
            f"{name}: {mode}, {who}, {size}{unit}, {day}" for name, mode, who, size, day in told
        ]
        return Printed(
            "\n".join([*head, *dots, *rows]),
            "\n".join(lines),
            "\n".join(line.replace(" bytes, ", " Bytes, ") for line in lines),
        )

    def _find(self, rest: list[str], _language: str) -> Printed | None:
        if rest[-5:] == ["xargs", "cat", "|", "wc", "-l"]:
            count = self._rng.randint(40, 90000)
            return Printed(str(count), f"It is {count} lines.", f"Es sind {count} Zeilen.")
        if rest[-3:] == ["|", "wc", "-l"] and rest[1:2] == ["-name"] and len(rest) == 6:
            count, where = self._rng.randint(2, 400), "" if rest[0] == "." else f" in {rest[0]}"
            return Printed(
                str(count),
                f"There are {count} {rest[2].lstrip('*')} files{where}.",
                f"Es gibt {count} {rest[2].lstrip('*')}-Dateien{where}.",
            )
        if rest[-3:] == ["|", "wc", "-l"] and "xargs" not in rest:
            count = self._rng.randint(2, 900)
            return Printed(str(count), f"There are {count} files.", f"Es sind {count} Dateien.")
        if "|" in rest or "-exec" in rest or "-delete" in rest or not rest:
            return None
        if self._rng.random() < 0.15:
            return Printed("(no output)", "No file matches.", "Keine Datei passt.")
        names = self._names(1, 4)
        if "-name" in rest and "*" in rest[-1]:
            names = [rest[-1].replace("*", self._make.word()) for _ in names]
        elif "-name" in rest:
            names = [f"{self._make.name()}/{rest[-1]}" for _ in names[:2]]
        elif rest[1:3] == ["-type", "d"]:
            names = [self._make.name() for _ in names]
        start = rest[0].rstrip("/")
        paths = [f"{start}/{name}" for name in dict.fromkeys(names)]
        both = _and(paths)
        return Printed(
            "\n".join(paths), f"I found {both[0]}.", f"Ich habe {both[1]} gefunden.", paths[0]
        )

    def _sorted(self, rest: list[str], language: str) -> Printed | None:
        """Lines of text in order."""
        if rest[1:] == ["|", "uniq", "-c", "|", "sort", "-rn"]:
            words = list(dict.fromkeys(self._make.word() for _ in range(4)))
            counts = sorted((self._rng.randint(1, 90) for _ in words), reverse=True)
            return Printed(
                "\n".join(f"{a:7d} {b}" for a, b in zip(counts, words, strict=True)),
                f"The most frequent line is {words[0]}, {counts[0]} times.",
                f"Am häufigsten ist die Zeile {words[0]}, {counts[0]}-mal.",
                words[0],
            )
        printed = self._lines(rest, language)
        if not printed:
            return None
        listed = "\n".join(sorted(printed.result.split("\n")))
        between = "\n" if "\n" in listed else " "
        return Printed(listed, f"It says:{between}{listed}", f"Da steht:{between}{listed}")

    def _lines(self, rest: list[str], language: str) -> Printed | None:
        """Lines of text, all of which are told if they are short."""
        if "|" in rest or ">" in rest or ">>" in rest or not rest:
            return None
        counts = [int(word) for word in rest if word.isdigit()]
        count = min(counts[0] if counts else self._rng.randint(1, 3), 4)
        rows = [self._values.text(language).split("\n")[0][:70] for _ in range(max(count, 1))]
        while len(rows) > 1 and sum(map(len, rows)) > 180:
            rows.pop()
        listed = "\n".join(rows)
        between = " " if len(rows) == 1 else "\n"
        return Printed(listed, f"It says:{between}{listed}", f"Da steht:{between}{listed}")


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _next(names: list[str]) -> tuple[str, str]:
    """Return what comes after the first, in English and in German."""
    if not names:
        return "", ""
    english, german = _and(names)
    return f", then {english}", f", dann {german}"
