"""The tool `calculator`; the arithmetic itself is in `arithmetic`."""

from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.arithmetic import ArithmeticFailure, evaluate
from clawd.tools.builtin.deps import object_schema


class CalculatorTool(Tool):
    """Computes an expression."""

    name: ClassVar[str] = "calculator"
    short: ClassVar[str] = "Compute an arithmetic expression, for example 12 * 7."
    description: ClassVar[str] = (
        "Computes exactly with + - * / // % ^ ** ! and parentheses; `15% of 80` works. Functions: "
        "sqrt abs round floor ceil min max sum pow factorial gcd lcm log ln log10 log2 exp sin cos "
        "tan asin acos atan degrees radians; angles are radians; constants pi, e, tau. Answers the "
        "number alone."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {"expression": {"type": "string", "description": "The expression."}}, "expression"
    )

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="computes")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        try:
            return succeeded(evaluate(arguments["expression"]))
        except ArithmeticFailure as failure:
            return failed(f"cannot compute {arguments['expression'][:100]!r}: {failure}")
