"""The tools that compute and touch nothing: `calculator`, and `time`.

The arithmetic is exact, on an expression as people write it, and evaluates nothing but numbers:

    expression := term (("+" | "-") term)*
    term       := unary (("*" | "/" | "//" | "%" | "of" | "x") unary)*
    unary      := ("+" | "-")* power
    power      := postfix (("^" | "**") unary)?
    postfix    := atom ("%" | "!")*
    atom       := number | name | name "(" expression ("," expression)* ")" | "(" expression ")"

Values are fractions, so that 0.1 + 0.2 is 0.3; functions such as sqrt round to 15 digits unless
their result is exact.
"""

import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import object_schema

MAX_LENGTH = 1000
_MAX_DEPTH = 60
_MAX_BITS = 12_000
_MAX_FACTORIAL = 1000
_PLAIN_DIGITS = 100
_SHOWN_DIGITS = 15
_ZERO = 1e-15  # sin(pi) is 0, and not 1.2e-16
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|//|[-+*/^%!(),]))"
)
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")"})


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


class ArithmeticFailure(ValueError):  # noqa: N818 - the text is an answer, not a defect
    """The expression cannot be computed; the text says why."""


def evaluate(expression: str) -> str:
    """Compute an expression and write the result as a person would.

    Raises:
        ArithmeticFailure: it is no expression, or has no value that could be shown.
    """
    if len(expression) > MAX_LENGTH:
        raise ArithmeticFailure(f"the expression is longer than {MAX_LENGTH} characters")
    return shown(_Parser(expression).value())


def shown(value: Fraction) -> str:
    """Write a number: whole ones exactly, others to 15 significant digits."""
    if value.denominator == 1 and abs(value.numerator) < 10**_PLAIN_DIGITS:
        return str(value.numerator)
    context = Context(prec=_SHOWN_DIGITS)
    number = context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context)
    is_plain = -7 <= number.adjusted() < _SHOWN_DIGITS
    return f"{number:f}" if is_plain else f"{number:e}".replace("e+", "e")


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text.translate(_SPELLINGS)))
        self._at = 0
        self._depth = 0

    def value(self) -> Fraction:
        if not self._tokens:
            raise ArithmeticFailure("the expression is empty")
        value = self._expression()
        if self._peek():
            raise ArithmeticFailure(f"{self._peek()!r} was not expected there")
        return value

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str:
        token = self._peek()
        if token and token in wanted:
            self._at += 1
            return token
        return ""

    def _expression(self) -> Fraction:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ArithmeticFailure(f"the expression is nested more than {_MAX_DEPTH} deep")
        value = self._term()
        while sign := self._take("+", "-"):
            right = self._term()
            value = _bounded(value + right if sign == "+" else value - right)
        self._depth -= 1
        return value

    def _term(self) -> Fraction:
        value = self._unary()
        while sign := self._take("*", "/", "//", "%", "of", "x"):
            right = self._unary()
            if sign in {"*", "of", "x"}:
                value = _bounded(value * right)
            elif right == 0:
                raise ArithmeticFailure("division by zero")
            elif sign == "/":
                value = _bounded(value / right)
            else:
                value = _bounded(Fraction(value // right) if sign == "//" else value % right)
        return value

    def _unary(self) -> Fraction:
        negative = False
        while sign := self._take("+", "-"):
            negative ^= sign == "-"
        value = self._power()
        return -value if negative else value

    def _power(self) -> Fraction:
        value = self._postfix()
        if not self._take("^", "**"):
            return value
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ArithmeticFailure(f"the expression is nested more than {_MAX_DEPTH} deep")
        result = _power(value, self._unary())
        self._depth -= 1
        return result

    def _postfix(self) -> Fraction:
        value = self._atom()
        while self._peek() in {"%", "!"}:
            if self._take("!"):
                value = _factorial(value)
                continue
            # `5 % 3` is a remainder; `15%`, `15% of 80` and `15% * 80` are hundredths.
            if self._peek(1) in {"", ")", ",", "*", "/", "of"}:
                self._at += 1
                value /= 100
                continue
            break
        return value

    def _atom(self) -> Fraction:
        token = self._peek()
        self._at += 1
        if token == "(":  # noqa: S105 - a token of the grammar
            value = self._expression()
            self._expect(")")
            return value
        if token and (token[0].isdigit() or token[0] == "."):
            return _number(token)
        name = token.lower()
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in _FUNCTIONS:
            return self._call(name)
        if not token:
            raise ArithmeticFailure("the expression ends too early")
        known = ", ".join(sorted({*_FUNCTIONS, *_CONSTANTS}))
        raise ArithmeticFailure(f"{token!r} is no number; known names are {known}")

    def _call(self, name: str) -> Fraction:
        self._expect("(")
        values = [self._expression()]
        while self._take(","):
            values.append(self._expression())
        self._expect(")")
        low, high, function = _FUNCTIONS[name]
        if not low <= len(values) <= high:
            raise ArithmeticFailure(f"{name} takes {low} to {high} values, not {len(values)}")
        try:
            return _bounded(function(*values))
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            raise ArithmeticFailure(f"{name}: {error}") from error

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise ArithmeticFailure(f"{token!r} is missing")


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.rstrip().removesuffix("=").rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ArithmeticFailure(f"{text[at:].strip()[:20]!r} is no part of a sum")
        found.append(match.group().strip())
        at = match.end()
    return found


def _number(text: str) -> Fraction:
    mantissa, _, exponent = text.replace("_", "").lower().partition("e")
    if abs(int(exponent or 0)) > _MAX_BITS // 4:
        raise ArithmeticFailure(f"{text} is too large or too small")
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        raise ArithmeticFailure("the result is too large or has too many digits")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if base < 0:
            raise ArithmeticFailure("a root of a negative number is no real number")
        root = _exact_root(base, exponent.denominator)
        if root is None:
            return _from_float("power", operator.pow, base, exponent)
        base, exponent = root, Fraction(exponent.numerator)
    if base == 0 and exponent < 0:
        raise ArithmeticFailure("division by zero")
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) != 1 and (size - 1) * abs(exponent) > _MAX_BITS:
        raise ArithmeticFailure("the result is too large or has too many digits")
    if abs(base) == 1:
        exponent %= 2
    return _bounded(base ** int(exponent))


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    if degree > 64 or value < 0:
        return None
    parts = []
    for number in (value.numerator, value.denominator):
        root = math.isqrt(number) if degree == 2 else _near_root(number, degree)
        if root**degree != number:
            return None
        parts.append(root)
    return Fraction(parts[0], parts[1])


def _near_root(number: int, degree: int) -> int:
    try:
        root = math.exp(math.log(number) / degree) if number else 0.0
        return round(root)
    except OverflowError:
        return 0


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or not 0 <= value <= _MAX_FACTORIAL:
        raise ArithmeticFailure(f"a factorial takes a whole number from 0 to {_MAX_FACTORIAL}")
    return _bounded(Fraction(math.factorial(int(value))))


def _from_float(name: str, function: Callable[..., float], *values: Fraction) -> Fraction:
    try:
        value = function(*map(float, values))
    except (ValueError, OverflowError) as error:
        raise ArithmeticFailure(f"{name}: {error}") from error
    if not math.isfinite(value):
        raise ArithmeticFailure(f"{name}: the result is not finite")
    return Fraction(0) if abs(value) < _ZERO else Fraction(f"{value:.15g}")


def _square_root(value: Fraction) -> Fraction:
    return _power(value, Fraction(1, 2))


def _rounded(value: Fraction, digits: Fraction = Fraction(0)) -> Fraction:
    if digits.denominator != 1 or abs(digits) > 50:
        raise ArithmeticFailure("round takes a whole number of digits from -50 to 50")
    scale = Fraction(10) ** int(digits)
    half = Fraction(1, 2)  # away from zero, as people round
    size = math.floor(abs(value) * scale + half)
    return Fraction(size if value >= 0 else -size) / scale


def _logarithm(value: Fraction, base: Fraction | None = None) -> Fraction:
    return _from_float("log", math.log, *([value] if base is None else [value, base]))


def _whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise ArithmeticFailure("gcd and lcm take whole numbers")
    return int(value)


_CONSTANTS = {
    "pi": Fraction("3.14159265358979323846"),
    "π": Fraction("3.14159265358979323846"),
    "e": Fraction("2.71828182845904523536"),
    "tau": Fraction("6.28318530717958647693"),
}
_FUNCTIONS: dict[str, tuple[int, int, Callable[..., Fraction]]] = {
    "sqrt": (1, 1, _square_root),
    "abs": (1, 1, abs),
    "round": (1, 2, _rounded),
    "floor": (1, 1, lambda value: Fraction(math.floor(value))),
    "ceil": (1, 1, lambda value: Fraction(math.ceil(value))),
    "min": (1, 50, lambda *values: min(values)),
    "max": (1, 50, lambda *values: max(values)),
    "sum": (1, 50, lambda *values: sum(values, Fraction(0))),
    "pow": (2, 2, _power),
    "factorial": (1, 1, _factorial),
    "gcd": (1, 50, lambda *values: Fraction(math.gcd(*map(_whole, values)))),
    "lcm": (1, 50, lambda *values: Fraction(math.lcm(*map(_whole, values)))),
    "log": (1, 2, _logarithm),
    "ln": (1, 1, _logarithm),
    "log10": (1, 1, partial(_from_float, "log10", math.log10)),
    "log2": (1, 1, partial(_from_float, "log2", math.log2)),
    "exp": (1, 1, partial(_from_float, "exp", math.exp)),
    "sin": (1, 1, partial(_from_float, "sin", math.sin)),
    "cos": (1, 1, partial(_from_float, "cos", math.cos)),
    "tan": (1, 1, partial(_from_float, "tan", math.tan)),
    "asin": (1, 1, partial(_from_float, "asin", math.asin)),
    "acos": (1, 1, partial(_from_float, "acos", math.acos)),
    "atan": (1, 1, partial(_from_float, "atan", math.atan)),
    "degrees": (1, 1, partial(_from_float, "degrees", math.degrees)),
    "radians": (1, 1, partial(_from_float, "radians", math.radians)),
}
