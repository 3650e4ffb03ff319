"""The base of all sections of the configuration, built-in values, and the small sections.

A section is strict and immutable, and its numbers have a size that fits. Here are [compression],
[external_tools], [plugins], [knowledge], [prompt], [schedules], [session_files], [tools], [web] and
[hooks],
with what is to be found out about the values of hooks; and [channels.http], of the HTTP gateway.
"""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from clawd.paths import Layout

MAX_NUMBER = 2**32 - 1
ALLOWED_COMMANDS: tuple[str, ...] = (
    "ls", "cat", "head", "tail", "wc", "grep", "rg", "find", "sort", "uniq", "cut", "tr",
    "date", "pwd", "echo", "stat", "file", "du", "df", "diff", "tree", "which",
    "git status", "git log", "git diff", "git show", "git branch",
)  # fmt: skip
FORBIDDEN_COMMANDS: tuple[str, ...] = ("rm", "shutdown", "reboot", "mkfs", "dd")
FORBIDDEN_PATHS: tuple[str, ...] = ("/etc", "/sys", "/boot", "~/.ssh")
WORKSPACE_ROOTS: tuple[str, ...] = ("~",)
POLICY_CASES = "policy-cases.toml"
CORE_TOOLS: tuple[str, ...] = (
    "file_edit", "file_list", "file_read", "file_write", "glob", "grep", "shell", "tool_lookup",
    "web_fetch", "web_search",
)  # fmt: skip
LOCAL_PROVIDER = "local"
LOCAL_MODEL = "auto"
PROVIDERS: dict[str, dict[str, Any]] = {
    LOCAL_PROVIDER: {"kind": "local", "model": LOCAL_MODEL},
    "mock": {"kind": "mock"},
}
SOURCE_DEFAULT = "default"
MAX_WORKSPACE_MESSAGE = 16 * 1024
ToolMode = Literal["split", "unified", "both"]
Offered = Literal["core", "all", "auto"]
Delays = Annotated[
    tuple[Annotated[float, Field(ge=0, le=604_800)], ...], Field(strict=False, max_length=20)
]

Words = Annotated[tuple[str, ...], Field(strict=False)]
Backend = Literal["duckduckgo", "brave", "mojeek", "yahoo", "startpage", "wikipedia", "grokipedia"]
Backends = Annotated[tuple[Backend, ...], Field(strict=False, max_length=16)]
SafeSearch = Literal["on", "moderate", "off"]
Region = Annotated[str, Field(pattern=r"^[a-z]{2}-[a-z]{2}$")]
EVENTS = ("before_tool", "after_tool", "turn_start", "turn_end", "on_question")
MAX_ENTRIES = 16
Powers = Annotated[tuple[Literal["write", "change", "context"], ...], Field(strict=False)]
Wrong = tuple[tuple[str | int, ...], object, str]


class Section(BaseModel):
    """The base of all sections: immutable, unknown keys refused, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _check_size(cls, value: object) -> object:
        # Numbers go on to the worker's frames and to llama.cpp, which take so many bits.
        if isinstance(value, int) and value > MAX_NUMBER:
            raise PydanticCustomError("too_big", f"a value of at most {MAX_NUMBER}")
        return value


def default_tree(layout: Layout) -> dict[str, Any]:
    """Return the values that depend on where clawd lives, in the shape of the file."""
    return {
        "workspace_dir": str(layout.workspace),
        "memory": {"path": str(layout.database)},
        "knowledge": {"path": str(layout.knowledge)},
        "receipts": {"path": str(layout.receipts)},
        "security": {
            "forbidden_paths": list(FORBIDDEN_PATHS),
            "workspace_roots": list(WORKSPACE_ROOTS),
            "policy_cases": str(layout.config.with_name(POLICY_CASES)),
        },
        "external_tools": {"dir": str(layout.external_tools)},
        "providers": {"models": {name: dict(values) for name, values in PROVIDERS.items()}},
    }


class CompressionSection(Section):
    """When the beginning of a conversation is replaced by a summary."""

    at_messages: int = Field(
        default=80,
        ge=8,
        description="A conversation that would be sent with this many messages is compressed.",
    )
    at_context_percent: int = Field(
        default=75,
        ge=10,
        le=95,
        description="How much of the context a request may fill.",
    )
    keep_least: int = Field(
        default=20,
        ge=1,
        description="The newest messages that are kept, at least, where they fit.",
    )
    keep_most: int = Field(
        default=30,
        ge=2,
        description="The newest messages that are kept, at most; never over half of at_messages.",
    )
    summary_tokens: int = Field(
        default=600, ge=64, le=8_192, description="Length of a summary, at most."
    )
    summary_timeout_s: float = Field(
        default=180.0,
        gt=0,
        le=3_600,
        description="A model that takes longer gives no summary; first words replace it.",
    )
    context_tokens: int = Field(
        default=0,
        ge=0,
        description="The size of the context where a provider does not report it; 0 is unknown, "
        "then only the number of messages counts.",
    )

    @property
    def most(self) -> int:
        """The newest messages that stay, at most."""
        return max(min(self.keep_most, self.at_messages // 2), 2)


class ExternalToolsSection(Section):
    """Programs of this machine as tools, each named by a manifest CLAWD-<name>.tools."""

    enabled: bool = Field(default=True, description="Whether the folder is read.")
    dir: Annotated[Path, Field(strict=False)] = Field(
        description="The folder of the manifests; in clawd's home, or outside of workspace_roots, "
        "so that no tool can write there."
    )


class PluginsSection(Section):
    """Plugins, which clawctl plugin install puts into plugins/ in clawd's home."""

    enabled: bool = Field(default=True, description="Whether installed plugins are loaded.")


class KnowledgeSection(Section):
    """Notes that the model keeps for later conversations, as Markdown files."""

    enabled: bool = Field(default=True, description="Whether there are knowledge tools.")
    path: Annotated[Path, Field(strict=False)] = Field(
        description="The folder of the notes. File tools and commands cannot reach it."
    )
    max_entry_bytes: int = Field(
        default=262_144, ge=1_024, le=262_144, description="The longest text of one note."
    )
    max_entries: int = Field(
        default=10_000, ge=1, le=100_000, description="How many notes each user may have."
    )
    trash_mb: int = Field(
        default=64,
        ge=0,
        le=1_048_576,
        description="Replaced and deleted notes that are kept, for each user; the oldest go "
        "first. 0 keeps none.",
    )


class PromptSection(Section):
    """Which parts of the system prompt the model receives, and what goes with messages."""

    base: bool = Field(
        default=True, description="The base prompt; [agent] system_prompt replaces it."
    )
    addenda: bool = Field(default=True, description="What tools add about themselves.")
    operator: bool = Field(default=True, description="[agent] system_append.")
    rules: bool = Field(
        default=True, description="Only these tools, when to write, what to cite, what it can know."
    )
    catalogue: bool = Field(
        default=True, description="The list of tools as text, beside the one of the protocol."
    )
    agent: bool = Field(default=True, description="The prompt of the chosen agent.")
    environment: bool = Field(default=True, description="The absolute path of the workspace.")
    guidance: bool = Field(default=True, description="How to go about a task.")
    rule_tools: bool = Field(default=True, description="Of the rules: no tools but these.")
    rule_writing: bool = Field(
        default=True, description="Of the rules: files are written when the user asked for it."
    )
    rule_cutoff: bool = Field(
        default=True, description="Of the rules: when its knowledge ends ([agent])."
    )
    rule_lookup: bool = Field(
        default=True, description="Of the rules: memory first, the web second, save what is new."
    )
    rule_sources: bool = Field(default=True, description="Of the rules: name your sources.")
    date: bool = Field(default=True, description="Date and hour with messages.")
    agents_md: bool = Field(
        default=True,
        description="Include AGENTS.md and CLAUDE.md of the workspace, and of its parents up to "
        "the root of its repository; at most 32 KiB and 8 folders.",
    )
    workspace_message: str = Field(
        default="",
        max_length=MAX_WORKSPACE_MESSAGE,
        description="Sent with the next message of every conversation, and again when it changes.",
    )

    def without_built_in_text(self) -> "PromptSection":
        """Return it with the operator's and the agent's text alone."""
        off = ("base", "addenda", "rules", "catalogue", "environment", "guidance")
        return self.model_copy(
            update={**dict.fromkeys(off, False), "operator": True, "agent": True}
        )


class SchedulesSection(Section):
    """Jobs that begin by themselves: by the clock, by a file, by a request."""

    enabled: bool = Field(default=True, description="Whether there may be any, and they begin.")
    timezone: str = Field(
        default="",
        max_length=64,
        description="Of the clocks by which new ones count, as Europe/Berlin; empty is the "
        "machine's.",
    )
    quiet: str = Field(
        default="",
        pattern=r"^$|^([01]?\d|2[0-3]):[0-5]\d\s*-\s*([01]?\d|2[0-3]):[0-5]\d$",
        description="Hours in which new ones begin nothing, as 22:00-07:00; empty for none.",
    )
    max_running: int = Field(
        default=4, ge=1, le=64, description="How many run side by side; others wait."
    )
    mail_command: Words = Field(
        default=(),
        description='What sends mail, as ["/usr/sbin/sendmail", "-t", "-i"]; it receives the '
        "message on standard input.",
    )
    retry_after_s: Delays = Field(
        default=(30, 120, 600, 3_600, 14_400, 43_200),
        description="A result that could not be delivered is tried again after so many seconds "
        "each time, and then given up; [] never tries again.",
    )
    webhook_secret_env: str = Field(
        default="",
        description="The environment variable, or systemd credential, with the secret by which "
        "results are signed that are posted: X-Clawd-Signature.",
    )


class SessionFilesSection(Section):
    """Files that belong to a conversation: long output, and what is kept beside the messages."""

    max_file_bytes: int = Field(
        default=8_388_608, ge=65_536, le=8_388_608, description="The largest of them."
    )
    max_conversation_bytes: int = Field(
        default=67_108_864,
        ge=65_536,
        description="All files of one conversation. When there is no room, the oldest long "
        "output goes; what was written by name stays.",
    )
    max_files: int = Field(
        default=200, ge=1, le=10_000, description="How many one conversation may have."
    )
    summaries: Literal["first-words", "model"] = Field(
        default="model",
        description="The line about each file that the model receives. `model`: written by the "
        "conversation's model while it is idle, from the file's beginning and end; the first "
        "words until then.",
    )


class ToolsSection(Section):
    """How tools are offered to models."""

    mode: ToolMode = Field(
        default="split",
        description="split offers one tool for each action (file_read, file_write), unified "
        "offers fs(action=...) and web(action=...) instead, both offers all of them. Policy, "
        "receipts and tools_allow use file_read and the like in every mode.",
    )
    offer: Offered = Field(
        default="auto",
        description="Which tools a request describes: core, with short schemas and the names of "
        "the others, which tool_lookup describes; all; or auto: all where they take at most a "
        "twentieth of the model's context, or where its prompt has none. Whatever is "
        "described, the same tools may be called.",
    )
    core: Words = Field(
        default=CORE_TOOLS,
        description="The built-in tools of the core. Tools of plugins and programs are described "
        "as well, those of MCP servers up to a sixteenth of the context.",
    )


class WebSection(Section):
    """The tools web_search, web_fetch and pdf_extract; [security] says where they may go."""

    search_backends: Backends = Field(
        default=("duckduckgo", "brave", "mojeek", "yahoo", "startpage", "wikipedia"),
        description="Search engines: duckduckgo, brave, mojeek, yahoo, startpage, wikipedia, "
        "grokipedia; the next is asked when one fails or finds too little. Empty: no search.",
    )
    max_results: int = Field(default=5, ge=1, le=20, description="Results of one search.")
    region: Region = Field(default="us-en", description="Country and language of a search.")
    safesearch: SafeSearch = Field(default="moderate", description="on, moderate or off.")
    user_agent: str = Field(
        default="Mozilla/5.0 (compatible; clawd)",
        min_length=1,
        max_length=200,
        pattern=r"^[ -~]+$",
        description="The User-Agent of web_search, web_fetch and pdf_extract.",
    )
    search_timeout_s: float = Field(
        default=20.0, gt=0, le=600, description="One search, all engines together."
    )
    max_page_bytes: int = Field(
        default=2_000_000,
        ge=1_024,
        le=64 << 20,
        description="What is read of a page, counted after decompression.",
    )
    max_pdf_bytes: int = Field(
        default=20_000_000, ge=1_024, le=256 << 20, description="The largest PDF."
    )
    max_pdf_pages: int = Field(
        default=50, ge=1, le=1_000, description="Pages of a PDF that one call reads."
    )
    extract_timeout_s: float = Field(
        default=15.0, gt=0, le=600, description="Reading the text of a page or PDF."
    )
    extract_memory_bytes: int = Field(
        default=512 << 20,
        ge=128 << 20,
        le=2**32 - 1,
        description="Memory of the process that reads it.",
    )


"""A key below [hooks], its value, and what was expected."""


class HookEntry(Section):
    """One program of [hooks]."""

    command: Words = Field(description="The program, by name or absolute path, and its arguments.")
    tools: Words = Field(
        default=("*",), description='Of before_tool and after_tool: tools, "file_*" works too.'
    )
    timeout_s: float = Field(
        default=10.0, gt=0, le=600, description="How long it may take; then it is ended."
    )
    where: Literal["sandbox", "owner"] = Field(
        default="sandbox",
        description="sandbox: as a command in the conversation's folder; owner: as the daemon's "
        "user, in its home.",
    )
    may: Powers = Field(
        default=(),
        description="write (to the folder, in the sandbox), change (arguments), context (add text "
        "to the conversation).",
    )


Entries = Annotated[tuple[HookEntry, ...], Field(strict=False, max_length=MAX_ENTRIES)]


class HooksSection(Section):
    """Your programs that run on calls and turns: see docs/hooks.md.

    Each is an entry {command = ["/home/you/bin/check"], tools = ["file_*"], timeout_s = 10,
    where = "sandbox" or "owner", may = ["write", "change", "context"]}, of which all but command
    may be left out.
    """

    before_tool: Entries = Field(
        default=(),
        description="Before a call is judged: may refuse it, require approval or, with change, "
        "replace its arguments. One that fails refuses it.",
    )
    after_tool: Entries = Field(
        default=(),
        description="After a call that ran; with context it adds to what the model receives.",
    )
    turn_start: Entries = Field(
        default=(),
        description="Before a message is answered: may refuse it or, with context, add to it.",
    )
    turn_end: Entries = Field(
        default=(),
        description="After a turn that was answered or failed, not one that was stopped.",
    )
    on_question: Entries = Field(
        default=(), description="While an approval or a question waits for the user."
    )


def wrong_values(section: dict[str, Any]) -> Iterator[Wrong]:
    """Return what of an untyped [hooks] the schema cannot say; wrong types are left out."""
    for event in EVENTS:
        entries = section.get(event)
        for number, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
            if isinstance(entry, dict):
                for at, value, expected in _entry(entry):
                    yield (event, number, *at), value, expected


def _entry(entry: dict[str, Any]) -> Iterator[Wrong]:
    command = entry.get("command")
    words = command if isinstance(command, list | tuple) else ()
    program = words[0] if words else ""
    is_path = isinstance(program, str) and "/" in program
    if isinstance(command, list | tuple) and not program:
        yield ("command",), list(words), "a program and its arguments"
    elif is_path and not str(program).startswith("/"):
        # A relative one would be the folder's, where the model could write another.
        yield ("command", 0), program, "a program by its name, as jq, or by an absolute path"
    for number, word in enumerate(words):
        if isinstance(word, str) and "\0" in word:
            yield ("command", number), word, "text without zero bytes"
    may = entry.get("may")
    if entry.get("where") == "owner" and isinstance(may, list | tuple) and "write" in may:
        yield ("may",), list(may), "no write: a program of the owner writes where its owner may"


_NAME = re.compile(
    r"([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
)


_ANY_PORT = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+):\*")
_ANY_OF_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://\*")
_OPEN = frozenset({"http", "https", "ws", "wss", "ftp", "file", "data", "blob", "about"})


def is_host(text: str) -> bool:
    """Return whether a text is a host name or an IP address, without port and brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return len(text) <= 253 and _NAME.fullmatch(text.lower()) is not None
    return True


def _host(text: str) -> str:
    if not is_host(text):
        raise PydanticCustomError(
            "host", 'a host name or an address, without port and scheme, as "clawd.lan"'
        )
    return text.lower()


def _origin(text: str) -> str:
    lowered = text.lower()
    any_port, any_of = _ANY_PORT.fullmatch(lowered), _ANY_OF_SCHEME.fullmatch(lowered)
    if (any_port and is_host(any_port[1].strip("[]"))) or (any_of and any_of[1] not in _OPEN):
        return lowered
    try:
        parts = urlsplit(text)
        is_whole = parts.port != 0 and parts.hostname is not None and is_host(parts.hostname)
    except ValueError:
        is_whole = False
        parts = urlsplit("")
    # A star would let every page in the world ask, and null is what any page can make itself.
    if not is_whole or text != f"{parts.scheme}://{parts.netloc}" or "@" in parts.netloc:
        raise PydanticCustomError(
            "origin",
            'an origin as browsers send it, "http://localhost:3000", or "http://localhost:*" for '
            'any port, or "vscode-webview://*" for a scheme of programs; neither * nor null, nor '
            'every page of the web ("https://*")',
        )
    return text.lower()


def _icon(text: str) -> str:
    if text and not text.lower().endswith((".svg", ".png")):
        raise PydanticCustomError("icon", 'a file whose name ends in ".svg" or ".png"')
    return text


IconFile = Annotated[str, AfterValidator(_icon)]
Host = Annotated[str, AfterValidator(_host)]
Hosts = Annotated[tuple[Host, ...], Field(strict=False)]
Origins = Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], Field(strict=False)]


class HttpSection(Section):
    """The HTTP gateway: the APIs of OpenAI, Anthropic and Ollama, and MCP."""

    enabled: bool = Field(default=False, description="Whether the gateway listens.")
    host: Host = Field(
        default="127.0.0.1",
        description="Where it listens: an address or a name. Anything but loopback needs a key "
        "(clawctl key create), and TLS or insecure_bind.",
    )
    port: int = Field(default=8686, ge=0, le=65_535, description="The TCP port; 0 takes any.")
    tools_allow: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=("*",),
        description='Tools offered to the model on this channel; "file_*" works too.',
    )
    agent: bool = Field(
        default=True,
        description="Whether clawd's own agent, with its tools, answers chats that supply no "
        "tools of their own (with a key of the scopes chat and tools); with false the model "
        "alone does.",
    )
    keep_conversations: bool = Field(
        default=True,
        description="Whether the agent's conversations are kept in memory; receipts always are.",
    )
    keyless: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether programs of the owner on this machine need no key: auto until the "
        "first key is made, on at all times, off never.",
    )
    mcp: bool = Field(default=True, description="Whether /mcp offers the tools to MCP clients.")
    page: bool = Field(
        default=True,
        description="Whether a browser gets the page at /. Until the first key is made, it acts as "
        "the owner without one.",
    )
    page_title: str = Field(
        default="clawd", min_length=1, max_length=60, description="What the page is called."
    )
    page_placeholder: str = Field(
        default="",
        max_length=120,
        description="What the page's empty message field says; empty leaves it to the page.",
    )
    page_icon: IconFile = Field(
        default="",
        description="A file (.svg or .png, up to 256 kB) that is the page's icon; empty: clawd's.",
    )
    cors_origins: Origins = Field(
        default=(),
        description='Web pages that may send requests, by origin, as "http://localhost:3000"; no '
        'others may. "http://localhost:*" is any port, "vscode-webview://*" every page of '
        "that scheme.",
    )
    allowed_hosts: Hosts = Field(
        default=(),
        description='Names that clients may call it by beside localhost, as "clawd.lan".',
    )
    tls_cert: str = Field(
        default="",
        description="The file of the certificate and its chain (PEM); it switches TLS on.",
    )
    tls_key: str = Field(
        default="",
        description="The file of its private key (PEM); empty where it is in tls_cert.",
    )
    insecure_bind: bool = Field(
        default=False,
        description="Let other machines connect without TLS: keys and answers can be read in "
        "transit.",
    )
    max_body_bytes: int = Field(
        default=8 << 20, ge=1_024, le=256 << 20, description="The longest body of a request."
    )
    max_connections: int = Field(
        default=512, ge=1, le=65_536, description="Connections at a time; more get 503."
    )
    header_timeout_s: float = Field(
        default=10.0, gt=0, le=600, description="A request's head must arrive within that time."
    )
    body_timeout_s: float = Field(
        default=60.0, gt=0, le=3_600, description="Its body must arrive within that time."
    )
    idle_timeout_s: float = Field(
        default=75.0,
        gt=0,
        le=86_400,
        description="A connection without requests is closed after that time.",
    )
    requests_per_minute: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Requests that each key may make in a minute; more get 429. 0 is no limit.",
    )
    ping_interval_s: float = Field(
        default=1.0,
        gt=0,
        le=60,
        description="A stream that is silent that long gets a keep-alive.",
    )
