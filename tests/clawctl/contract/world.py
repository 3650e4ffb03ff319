"""A real daemon with something of everything in it, and names for what rows need."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawctl.client import Client, connect
from clawd.wire.conversations import ShowConversation, WriteSessionFile
from clawd.wire.daemon import CreateKey
from clawd.wire.events import ApprovalRequested
from clawd.wire.mcp import ConnectMcp, DiffMcp, ListMcpServers
from clawd.wire.method import Method
from clawd.wire.models import LoadModel
from clawd.wire.policy import AnswerApproval, ListApprovals, ListRules
from clawd.wire.schedules import AddSchedule
from clawd.wire.sops import RunSop
from clawd.wire.tools import ListJobs, RunTool
from clawd.wire.turns import SendMessage
from tests.plugins.plugin_files import plugin
from tests.skills.skill_files import skill
from tests.sop.procedures import procedure, shell
from tests.support.fake_systemd import FakeSystemd
from tests.support.here import Ended, run_here
from tests.support.home import Home
from tests.support.lora_gguf import write_adapter, write_base
from tests.support.terminal import code_of, end, spawn_clawctl

LIMIT_S = 60.0
# They hand their descriptors on, and write to no stream of this process.
WITH_DESCRIPTORS = (["mcp", "serve"], ["service", "logs"])
SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"


class World:
    """The names in a row's words: `{conversation}` is one that is there, `{a_key}` a new one."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.systemd = FakeSystemd(folder / "systemd")
        self.systemd.says("journalctl.says", '{"MESSAGE": "a line of the journal"}\n')
        home.environ |= {"PATH": f"{self.systemd.path}:{home.environ['PATH']}"}
        self._count = 0
        self._open: list[Client] = []
        self._kept: dict[str, str] = {}
        words = json.dumps([sys.executable, str(SERVER)])
        seen = json.dumps([str(SERVER.parent), sys.prefix, sys.base_prefix])
        home.configure(
            {"text": "an answer to all that was said"},
            tables="[channels.http]\nenabled = true\nport = 0\n"
            f"[mcp.servers.hand]\ncommand = {words}\nreadonly_paths = {seen}\n",
        )
        home.start()
        self.socket = home.path / "run" / "clawd.sock"
        (folder / "policy.toml").write_text(
            '[[case]]\nname = "a"\ntool = "time"\nexpect = "allow"\n'
        )
        (folder / "editor").write_text("#!/bin/sh\nexit 0\n")
        (folder / "editor").chmod(0o700)

    def fill(self) -> None:
        """Put a conversation and a receipt there."""
        assert self.conversation
        assert self.receipt

    def __getitem__(self, name: str) -> str:
        return str(getattr(self, name))

    def close(self) -> None:
        for client in self._open:
            client.close()

    def call(self, request: Method[Any]) -> Any:
        with self._connected() as client:
            stream = client.stream(request)
            for _event in stream:
                pass
            return stream.result

    def _connected(self) -> Client:
        """Connect; `clawctl stop` is one of the commands, so the daemon may have to be started."""
        if not self.socket.exists():
            assert self.home.ctl("status").returncode == 0
        return connect(self.socket)

    def run(self, words: list[str], *, stdin: str = "") -> Ended:
        """Run clawctl in this process: the real command line, client and socket."""
        if words[:2] in WITH_DESCRIPTORS:
            done = self.home.ctl(*words, stdin=stdin)
            return Ended(code=done.returncode, out=done.stdout, err=done.stderr)
        return run_here([word.format_map(self) for word in words], stdin=stdin)

    def run_at_terminal(self, words: list[str], typed: str) -> Ended:
        """Run clawctl on a terminal of its own, and type a line."""
        child = spawn_clawctl(self.home.environ, *words)
        try:
            child.sendline(typed)
            code = code_of(child)
        finally:
            end(child)
        return Ended(code=code, out=child.before or "", err="")

    # --- what is there already

    @property
    def conversation(self) -> str:
        return self._once("conversation", lambda: self.a_conversation)

    @property
    def a_message(self) -> str:
        shown = self.call(ShowConversation(conversation_id=self.conversation))
        return str(shown.messages[0].id)

    @property
    def receipt(self) -> str:
        def made() -> str:
            self.call(RunTool(name="time"))
            return str(self.home.receipt_lines()[0]["id"])

        return self._once("receipt", made)

    @property
    def file(self) -> str:
        return self._once("file", lambda: self._file("notes.txt"))

    @property
    def job(self) -> str:
        """A command that runs; `clawctl stop` is one of the commands, and ends all of them."""
        running = [each.id for each in self.call(ListJobs()).items if each.state == "running"]
        return running[0] if running else self.a_job

    @property
    def plugin(self) -> str:
        """The plugin, installed whatever was done to it before."""
        done = self.run(["plugin", "install", str(self.plugin_source), "--yes"])
        assert done.code == 0, done.err
        return "probe"

    @property
    def server(self) -> str:
        """The MCP server, connected whatever was done to it before."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            lines = self.call(ListMcpServers()).items
            line = next(each for each in lines if each.alias == "hand")
            if line.link == "ready":
                return "hand"
            assert time.monotonic() < deadline, line
            if line.link == "off":
                self.call(ConnectMcp(alias="hand"))
            time.sleep(0.05)

    @property
    def offer(self) -> str:
        """The hash of what the MCP server offers."""
        offer: str = self.call(DiffMcp(alias=self.server)).offer
        return offer

    @property
    def backup(self) -> str:
        def made() -> str:
            path = str(self.new.with_suffix(".tar.gz"))
            assert self.run(["backup", "create", path]).code == 0
            return path

        return self._once("backup", made)

    @property
    def plugin_source(self) -> Path:
        return plugin(self.new)

    @property
    def skill_source(self) -> Path:
        return skill(self.new)

    @property
    def skill(self) -> str:
        """The name of a workspace's skill, untrusted."""
        return self._once("skill", lambda: skill(self._skills / "sorting").name)

    @property
    def _skills(self) -> Path:
        return Path(self.home.workspace, ".agents", "skills")

    @property
    def own_sop(self) -> str:
        """The name of a procedure of the home, which waits for a yes."""
        body = '[[steps]]\nid = "go"\nkind = "approval"\nprompt = "Go on?"\n'
        return self._once("own_sop", lambda: procedure(self.home.path / "sops", "go", body).name)

    @property
    def sop(self) -> str:
        """The name of a workspace's procedure, which is not enabled."""
        place = Path(self.home.workspace, "sops")
        return self._once("sop", lambda: procedure(place, "check", shell("one", "ls")).name)

    @property
    def a_sop_run(self) -> str:
        """A run that waits for a yes."""
        return str(self.call(RunSop(name=self.own_sop)).run.id)

    @property
    def table(self) -> Path:
        return self.folder / "policy.toml"

    @property
    def gguf(self) -> Path:
        path = self.new.with_suffix(".gguf")
        path.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\0" * 64)
        return path

    # --- made anew each time

    @property
    def new(self) -> Path:
        """A path that is not there."""
        self._count += 1
        return self.folder / f"new-{self._count}"

    @property
    def a_server(self) -> str:
        """The alias of a server that the config does not have."""
        self._count += 1
        return f"more-{self._count}"

    @property
    def known_server(self) -> str:
        """The alias of a server that the config has."""
        alias = self.a_server
        assert self.run(["mcp", "add", alias, "http://127.0.0.1:9/mcp"]).code == 0
        return alias

    @property
    def servers_file(self) -> str:
        """A file of another program that names a server."""
        path = self.new.with_suffix(".json")
        path.write_text(json.dumps({"mcpServers": {self.a_server: {"command": "/bin/true"}}}))
        return str(path)

    @property
    def note(self) -> str:
        self._count += 1
        word = f"note{self._count}"
        assert self.run(["knowledge", "save", word, "text"]).code == 0
        return word

    @property
    def a_conversation(self) -> str:
        sent = self.call(SendMessage(text="hello"))
        return str(sent.conversation_id)

    @property
    def a_long_conversation(self) -> str:
        conversation = self.a_conversation
        for _ in range(8):
            self.call(SendMessage(text="word " * 200, conversation_id=conversation))
        return conversation

    @property
    def a_job(self) -> str:
        """A command that goes on after its call, and has printed a word."""
        arguments = json.dumps({"command": "echo begun; sleep 300", "timeout_s": 0.5})
        conversation = self.a_conversation
        self.call(RunTool(name="shell", arguments=arguments, conversation_id=conversation))
        deadline = time.monotonic() + LIMIT_S
        while not (line := self.call(ListJobs(conversation_id=conversation)).items[0]).output_bytes:
            assert time.monotonic() < deadline, line
        return str(line.id)

    @property
    def a_file(self) -> str:
        self._count += 1
        return self._file(f"file-{self._count}.txt")

    @property
    def a_key(self) -> str:
        return str(self.call(CreateKey(name="k", scopes=("chat",))).line.id)

    @property
    def an_approval(self) -> str:
        """A call that waits for an answer; its owner stays connected."""
        self._count += 1
        arguments = json.dumps({"path": f"f{self._count}.txt", "content": "x"})
        client = connect(self.socket)
        self._open.append(client)
        stream = client.stream(RunTool(name="file_write", arguments=arguments, interactive=True))
        for event in stream:
            if isinstance(event, ApprovalRequested):
                return event.approval_id
        raise AssertionError("nothing was asked")

    @property
    def new_name(self) -> str:
        return self.new.name

    @property
    def a_schedule(self) -> str:
        """The name of a schedule that is run by hand."""
        return str(self.call(AddSchedule(name=self.new_name, prompt="hello")).name)

    @property
    def schedule(self) -> str:
        return self._once("schedule", lambda: self.a_schedule)

    @property
    def a_rule(self) -> str:
        wanted = self.an_approval
        listed = self.call(ListApprovals()).items
        line = next(each for each in listed if each.id == wanted)
        self.call(AnswerApproval(approval_id=line.id, digest=line.digest, answer="always"))
        deadline = time.monotonic() + LIMIT_S
        while not (rules := self.call(ListRules()).items):
            assert time.monotonic() < deadline
        return str(rules[0].id)

    @property
    def config_copy(self) -> Path:
        path = self.new.with_suffix(".toml")
        path.write_bytes((self.home.path / "config.toml").read_bytes())
        return path

    @property
    def a_model(self) -> str:
        self._count += 1
        name = f"model-{self._count}"
        assert self.run(["model", "add", str(self.gguf), "--name", name]).code == 0
        return name

    @property
    def a_base(self) -> Path:
        return write_base(self.new.with_suffix(".gguf"))

    @property
    def an_adapter(self) -> Path:
        return write_adapter(self.new.with_suffix(".gguf"))

    @property
    def a_loaded_model(self) -> str:
        self.call(LoadModel(name="embedded"))
        return "embedded"

    def _once(self, name: str, make: Callable[[], str]) -> str:
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _file(self, name: str) -> str:
        self.call(WriteSessionFile(conversation_id=self.conversation, name=name, content=b"text"))
        return name
