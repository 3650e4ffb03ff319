"""Handlers about memory as a whole: copies and checks."""

from pathlib import Path

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.wire.memory_methods import BackUpMemory, CheckMemory, MemoryCheck
from clawd.wire.reports import Done


class UpkeepHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def back_up_memory(self, params: BackUpMemory, _call: Call) -> Done:
        """Write a copy of memory."""
        size = await self.parts.memory.upkeep.backup(Path(params.path))
        return Done(message=f"{params.path} ({size} bytes)")

    async def check_memory(self, params: CheckMemory, _call: Call) -> MemoryCheck:
        """Check memory, and make bad search indexes anew if asked to."""
        upkeep = self.parts.memory.upkeep
        problems = await upkeep.check()
        is_repaired = False
        if problems and params.repair:
            await upkeep.rebuild_indexes()
            problems = await upkeep.check()
            is_repaired = not problems
        return MemoryCheck(
            path=str(self.parts.memory.path),
            used_bytes=await upkeep.size(),
            problems=problems,
            is_repaired=is_repaired,
        )
