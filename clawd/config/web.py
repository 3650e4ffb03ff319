"""The section of the web tools: [web]."""

from typing import Annotated, Literal

from pydantic import Field

from clawd.config.section import Section

Backend = Literal["duckduckgo", "brave", "mojeek", "yahoo", "startpage", "wikipedia", "grokipedia"]
Backends = Annotated[tuple[Backend, ...], Field(strict=False, max_length=16)]
SafeSearch = Literal["on", "moderate", "off"]
Region = Annotated[str, Field(pattern=r"^[a-z]{2}-[a-z]{2}$")]


class WebSection(Section):
    """The tools web_search, web_fetch and pdf_extract; [security] says where they may go."""

    search_backends: Backends = Field(
        default=("duckduckgo", "brave", "mojeek", "yahoo", "startpage", "wikipedia"),
        description="Search engines: duckduckgo, brave, mojeek, yahoo, startpage, wikipedia, "
        "grokipedia; the next is asked when one fails or found too little. Empty: no search.",
    )
    max_results: int = Field(default=5, ge=1, le=20, description="Results of one search.")
    region: Region = Field(default="us-en", description="Country and language of a search.")
    safesearch: SafeSearch = Field(default="moderate", description="on, moderate or off.")
    user_agent: str = Field(
        default="Mozilla/5.0 (compatible; clawd)",
        min_length=1,
        max_length=200,
        pattern=r"^[ -~]+$",
        description="How web_search, web_fetch and pdf_extract name themselves.",
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
