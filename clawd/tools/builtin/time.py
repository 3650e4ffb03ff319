"""The tool `time`: the date and time here and in UTC."""

from datetime import UTC, datetime
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, succeeded
from clawd.tools.builtin.deps import object_schema


class TimeTool(Tool):
    """Tells the time."""

    name: ClassVar[str] = "time"
    short: ClassVar[str] = "Tell the current date, time and time zone."
    description: ClassVar[str] = (
        "Answers three lines: the local date and time with the weekday, the same moment in UTC, "
        "and the name of the local time zone. Takes no arguments."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema({})
    aliases: ClassVar[tuple[str, ...]] = ("datetime",)

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="reads the clock")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        now = datetime.now(UTC).replace(microsecond=0)
        local = now.astimezone()
        return succeeded(
            f"local: {local:%A} {local.isoformat(sep=' ')}\n"
            f"utc: {now:%Y-%m-%dT%H:%M:%SZ}\n"
            f"zone: {local.tzname()}"
        )
