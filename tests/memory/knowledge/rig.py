"""A knowledge folder and short ways to work with it."""

import os
from pathlib import Path

from clawd.config.sections import KnowledgeSection
from clawd.memory.knowledge.entries import Author, FoundPage, Written
from clawd.memory.knowledge.keywords import entry_name, searched_keywords, wanted_entries
from clawd.memory.knowledge.store import Knowledge

ME = os.getuid()
OTHER = ME + 1_001


class Notes:
    """The knowledge in a folder, as one person uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = KnowledgeSection(path=folder)
        self.knowledge = Knowledge(lambda: self.settings)

    def limit(self, **limits: int) -> None:
        self.settings = self.settings.model_copy(update=limits)

    async def save(
        self, keywords: str, content: str, *, fix: bool = False, author: Author | None = None
    ) -> Written:
        name = entry_name(keywords, fixed=fix)
        return await self.knowledge.save(name, content, author or Author(uid=ME))

    async def append(self, keywords: str, content: str, *, author: Author | None = None) -> Written:
        return await self.knowledge.append(entry_name(keywords), content, author or Author(uid=ME))

    async def search(
        self, keywords: str, *, uid: int = ME, page: int = 1, size: int = 10
    ) -> FoundPage:
        wanted = searched_keywords(keywords)
        return await self.knowledge.search(wanted, uid=uid, page=page, size=size)

    async def load(self, keywords: str, *, uid: int = ME) -> FoundPage:
        return await self.knowledge.load(wanted_entries(keywords), uid=uid)

    async def delete(self, keywords: str, *, uid: int = ME, may_be_fixed: bool = False) -> str:
        return await self.knowledge.delete(
            wanted_entries(keywords), uid=uid, may_be_fixed=may_be_fixed
        )

    async def names(self, prefix: str = "", *, uid: int = ME) -> list[str]:
        return [card.file for card in await self.knowledge.listed(prefix, uid=uid)]

    def text(self, file: str) -> str:
        return (self.folder / file).read_text(encoding="utf-8")

    def write(self, file: str, text: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / file
        path.write_text(text, encoding="utf-8")
        return path

    def trashed(self) -> list[str]:
        """Return what the trash keeps, oldest first."""
        trash = self.folder / ".trash"
        found = sorted(trash.iterdir()) if trash.is_dir() else []
        return [path.read_text(encoding="utf-8") for path in found]

    def left_over(self) -> list[str]:
        """Return files that no entry is and nobody should leave."""
        return [path.name for path in self.folder.glob(".clawd-*")]


def files_of(found: FoundPage) -> list[str]:
    return [hit.card.file for hit in found.hits]
