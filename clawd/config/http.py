"""The section of the HTTP gateway: [channels.http]."""

import ipaddress
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from clawd.config.sections import Section

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
