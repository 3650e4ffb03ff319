"""What well-known commands print, and what that means: for `outcomes.py`.

Each method gives the text of a command, an English and a German sentence that is true of it.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

from training.assistant.values import Values

MANY = 6
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_PROCESSES = [
    "firefox", "node", "postgres", "ffmpeg", "python3", "java", "chrome", "dockerd", "nginx",
    "mysqld", "code", "gnome-shell", "Xorg", "redis-server", "systemd", "sshd", "rsync", "cron",
]  # fmt: skip
_IMAGES = ["postgres", "redis", "nginx", "mysql", "node", "python", "mongo", "traefik"]
_SERVICES = ["db", "cache", "web", "api", "worker", "proxy"]


class Printed(NamedTuple):
    """The output of a command and the sentences that sum it up."""

    result: str
    english: str
    german: str
    first: str = ""


def _and(items: list[str]) -> tuple[str, str]:
    if len(items) == 1:
        return items[0], items[0]
    if len(items) > MANY:
        start = ", ".join(items[:MANY])
        return f"{start} and more", f"{start} und mehr"
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
            "cat": self._lines,
            "sort": self._lines,
        }
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
        match rest:
            case ["status", *_]:
                return self._git_status()
            case ["log", *more]:
                return self._git_log(more, language)
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
            case ["diff"]:
                return self._git_diff()
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
            case ["remote", "-v"]:
                host = self._rng.choice(["github.com", "gitlab.com", "codeberg.org"])
                url = f"git@{host}:{self._make.word()}/{self._make.word()}.git"
                return Printed(
                    f"origin\t{url} (fetch)\norigin\t{url} (push)",
                    f"The remote is origin: {url}",
                    f"Das Remote ist origin: {url}",
                )
            case ["stash", "list"]:
                return self._git_stashes(language)
            case ["add", *_, name]:
                what = ("everything", "alles") if name in {"-A", "."} else (name, name)
                return Printed("(no output)", f"Staged {what[0]}.", f"Gestagt: {what[1]}.")
            case ["push", *more]:
                branch = more[-1] if more else self._branch()
                return Printed(
                    f"   {self._hash()}..{self._hash()}  {branch} -> {branch}",
                    f"Pushed {branch}.",
                    f"{branch} ist gepusht.",
                )
            case ["pull"]:
                if self._rng.random() < 0.3:
                    return Printed(
                        "Already up to date.",
                        "It is already up to date.",
                        "Es ist schon auf dem neuesten Stand.",
                    )
                names = self._names(1, 2)
                rows = [f" {name} | {self._rng.randint(1, 60)} +-" for name in names]
                both = _and(names)
                return Printed(
                    "\n".join([f"Updating {self._hash()}..{self._hash()}", *rows]),
                    f"Pulled; {both[0]} changed.",
                    f"Gepullt; geändert: {both[1]}.",
                )
            case ["tag"]:
                start = self._rng.randint(0, 4)
                tags = [f"v{start}.{minor}.{self._rng.randint(0, 9)}" for minor in range(1, 4)]
                both = _and(tags)
                return Printed(
                    "\n".join(tags), f"The tags are {both[0]}.", f"Die Tags sind {both[1]}."
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
        asked = [int(word) for word in more if word.isdigit()]
        count = min(asked[0] if asked else rng.randint(2, 4), 5)
        rows = [
            f"{self._hash()} {self._values.of('GM', language).sent}" for _ in range(max(count, 1))
        ]
        while len(rows) > 1 and sum(map(len, rows)) > 230:
            rows.pop()
        if len(rows) == 1:
            return Printed(rows[0], f"The last commit: {rows[0]}", f"Der letzte Commit: {rows[0]}")
        listed = "\n".join(rows)
        return Printed(
            listed,
            f"The last {len(rows)} commits:\n{listed}",
            f"Die letzten {len(rows)} Commits:\n{listed}",
        )

    def _git_diff(self) -> Printed:
        rng = self._rng
        if rng.random() < 0.12:
            return Printed("(no output)", "Nothing has changed.", "Nichts ist geändert.")
        name, word = self._names(1, 1)[0], self._make.word()
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
        rng = self._rng
        match rest:
            case ["ps", *more]:
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
                    if more:
                        state = rng.choice([state, "Exited (0) 2 hours ago"])
                    tag = rng.randint(3, 16)
                    rows.append(f"{rng.getrandbits(48):012x}  {image}:{tag}  {state}  {name}")
                both = _and(names)
                is_one = len(names) == 1
                english = f"{both[0]} {'is' if is_one else 'are'} running."
                german = f"{both[1]} {'läuft' if is_one else 'laufen'}."
                if more:
                    english, german = f"The containers: {both[0]}.", f"Die Container: {both[1]}."
                return Printed("\n".join([head, *rows]), english, german)
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
            case ["logs", *_]:
                return self._lines(rest[1:], language)
            case ["stop" | "start" | "restart" as verb, name]:
                done = {"stop": "Stopped", "start": "Started", "restart": "Restarted"}[verb]
                getan = {"stop": "gestoppt", "start": "gestartet", "restart": "neu gestartet"}[verb]
                return Printed(name, f"{done} {name}.", f"{name} ist {getan}.")
            case _:
                return None

    def _df(self, _rest: list[str], _language: str) -> Printed:
        rng = self._rng
        rows, said, gesagt = [], [], []
        mounts = ["/", *rng.sample(["/home", "/boot", "/data", "/mnt/backup"], rng.randint(0, 2))]
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

    def _one_echo(self, rest: list[str], _language: str) -> Printed | None:
        text = " ".join(rest)
        if not text or set(text) & set("$>|<;&-"):
            return None
        return Printed(text, f"The command printed: {text}", f"Der Befehl ergab: {text}")

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

    def _one_hostname(self, rest: list[str], _language: str) -> Printed:
        if rest == ["-I"]:
            address = self._address()
            return Printed(address, f"The address is {address}.", f"Die Adresse ist {address}.")
        name = self._rng.choice([self._make.word(), f"{self._make.word()}-pc"])
        return Printed(name, f"This machine is called {name}.", f"Der Rechner heißt {name}.")

    def _one_ip(self, rest: list[str], _language: str) -> Printed | None:
        if rest[:1] not in (["addr"], ["a"]):
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
            )
        least, mean = rng.randint(10, 99) / 10, rng.randint(100, 900) / 10
        return Printed(
            f"{head}\nrtt min/avg/max = {least}/{mean}/{mean + 20:.1f} ms",
            f"{host} answers: 0% packet loss, {mean} ms on average.",
            f"{host} antwortet: 0 % Paketverlust, im Schnitt {mean} ms.",
        )

    def _systemctl(self, rest: list[str], _language: str) -> Printed | None:
        rng = self._rng
        if rest[:1] == ["restart"] and len(rest) == 2:
            name = rest[1]
            return Printed("(no output)", f"Restarted {name}.", f"{name} ist neu gestartet.")
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
                ("failed (Result: exit-code)", "has failed", "ist ausgefallen"),
            ]
        )
        return Printed(
            f"{name}.service\n   Loaded: loaded\n   Active: {state} since {since}",
            f"{name} {english}, since {since}.",
            f"{name} {german}, seit {since}.",
        )

    def _one_crontab(self, rest: list[str], _language: str) -> Printed | None:
        if rest != ["-l"]:
            return None
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
        path = f"{self._rng.choice(['/usr/bin', '/usr/local/bin', '/opt/bin'])}/{rest[0]}"
        return Printed(path, f"{rest[0]} is at {path}.", f"{rest[0]} liegt in {path}.")

    def _one_printenv(self, rest: list[str], _language: str) -> Printed | None:
        if len(rest) != 1:
            return None
        value = self._rng.choice([self._make.word(), self._make.path()])
        return Printed(value, f"{rest[0]} is {value}.", f"{rest[0]} ist {value}.")

    def _one_wc(self, rest: list[str], _language: str) -> Printed | None:
        if len(rest) != 2 or rest[0] not in {"-l", "-w", "-c"}:
            return None
        count, name = self._rng.randint(2, 9000), rest[1]
        english, german = {
            "-l": ("lines", "Zeilen"),
            "-w": ("words", "Wörter"),
            "-c": ("bytes", "Bytes"),
        }[rest[0]]
        return Printed(
            f"{count} {name}",
            f"{name} has {count} {english}.",
            f"{name} hat {count} {german}.",
            str(count),
        )

    def _one_curl(self, rest: list[str], _language: str) -> Printed | None:
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
            case ["install", "-r", name]:
                done = " ".join(pair.replace(" ", "-") for pair in pairs)
                return Printed(
                    f"Successfully installed {done}",
                    f"Installed what {name} asks for: {both[0]}.",
                    f"Aus {name} installiert: {both[1]}.",
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

    def _tests(self, _rest: list[str], _language: str) -> Printed:
        rng, passed = self._rng, self._rng.randint(2, 400)
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
            f"{count} failed and {passed} passed. Failed: {both[0]}.",
            f"{count} fehlgeschlagen, {passed} bestanden. Fehlgeschlagen: {both[1]}.",
        )

    def _npm(self, rest: list[str], _language: str) -> Printed | None:
        rng, passed = self._rng, self._rng.randint(2, 200)
        match rest:
            case ["test"]:
                failed = rng.choice([0, 0, rng.randint(1, 5)])
                first = f"{failed} failed, " if failed else ""
                return Printed(
                    f"Tests: {first}{passed} passed, {passed + failed} total",
                    f"{failed} tests failed, {passed} passed."
                    if failed
                    else f"All {passed} tests passed.",
                    f"{failed} Tests sind fehlgeschlagen, {passed} bestanden."
                    if failed
                    else f"Alle {passed} Tests sind bestanden.",
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
                f"{passed} tests passed, {failed} failed.",
                f"{passed} Tests bestanden, {failed} fehlgeschlagen.",
            )
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

    # files

    def _ls(self, rest: list[str], _language: str) -> Printed | None:
        rng = self._rng
        if "|" in rest:
            if rest[-3:] != ["|", "wc", "-l"] or len(rest) != 4:
                return None
            count = rng.randint(2, 400)
            return Printed(
                str(count), f"{rest[0]} has {count} files.", f"{rest[0]} hat {count} Dateien."
            )
        options = "".join(word[1:] for word in rest if word.startswith("-"))
        names = self._names(2, 4)
        if "a" in options:
            names = [rng.choice([".env", ".gitignore", ".git", ".venv", ".config"]), *names]
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
            rows.append(f"-rw-r--r-- user {size} {stamp} {name}")
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

    def _find(self, rest: list[str], _language: str) -> Printed | None:
        if "|" in rest or "-exec" in rest or "-delete" in rest or not rest:
            return None
        if self._rng.random() < 0.15:
            return Printed("(no output)", "No file matches.", "Keine Datei passt.")
        names = self._names(1, 4)
        if "-name" in rest and "*" in rest[-1]:
            names = [rest[-1].replace("*", self._make.word()) for _ in names]
        start = rest[0].rstrip("/")
        paths = [f"{start}/{name}" for name in dict.fromkeys(names)]
        both = _and(paths)
        return Printed(
            "\n".join(paths), f"I found {both[0]}.", f"Ich habe {both[1]} gefunden.", paths[0]
        )

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


def _next(names: list[str]) -> tuple[str, str]:
    """Return what comes after the first, in English and in German."""
    if not names:
        return "", ""
    english, german = _and(names)
    return f", then {english}", f", dann {german}"
