"""time, calculator and ask_user."""

import re
from datetime import UTC, datetime

import pytest

from clawd.tools.builtin.calculator import ArithmeticFailure, evaluate
from clawd.tools.builtin.user import problem_of
from clawd.wire.events import PAGE_OPENED
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench


async def test_time_says_local_utc_and_zone(bench: Bench) -> None:
    result = await bench.call("time")
    local, utc, zone = result.output.splitlines()
    assert re.fullmatch(r"local: \w+day \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d", local)
    told = datetime.fromisoformat(utc.removeprefix("utc: "))
    assert abs((datetime.now(UTC) - told).total_seconds()) < 60
    assert zone.startswith("zone: ")


@each_row(
    ("expression", "value"),
    [
        ("12 * 7", "84"), ("0.1 + 0.2", "0.3"), ("1/3", "0.333333333333333"), ("2^10", "1024"),
        ("2 ** -2", "0.25"), ("-2^2", "-4"), ("(-2)^2", "4"), ("2^3^2", "512"), ("sqrt(16)", "4"),
        ("sqrt(2)", "1.4142135623731"), ("15% of 80", "12"), ("50%", "0.5"), ("17 % 5", "2"),
        ("200*(1+5%)", "210"), ("5!", "120"), ("7//2", "3"), ("100/4 =", "25"), ("8^(1/3)", "2"),
        ("3 × 4 − 2 ÷ 1", "10"), ("3 x 4", "12"), ("round(2.675, 2)", "2.68"),
        ("round(-2.5)", "-3"), ("log(100, 10)", "2"), ("sin(pi)", "0"), ("cos(0)", "1"),
        ("max(1, 2, 3)", "3"), ("gcd(12, 18)", "6"), ("10^-20", "1e-20"), ("1e400", "1e400"),
        ("(-1)^99999999999", "-1"), ("99999999999999999999 + 1", "100000000000000000000"),
        ("1_000 * 3", "3000"), (".5 + 5.", "5.5"), ("--1", "1"), ("0^0", "1"),
    ],
)  # fmt: skip
def test_sums_are_exact(expression: str, value: str) -> None:
    assert evaluate(expression) == value


@each_row(
    "expression",
    [
        "", " ", "1/0", "5 % 0", "1 // 0", "0^-1", "(1+2", "1+", "2 3", "import os", "a.b",
        "__import__('os').system('x')", "9^9^9", "9**9**9**9", "2^99999", "1e99999", "5000!",
        "(-1)!", "1.5!", "sqrt(-4)", "(-8)^0.5", "log(0)", "log(-1)", "exp(99999)", "sqrt()",
        "sqrt(1,2)", "gcd(1.5)", "1,000", "(" * 100 + "1" + ")" * 100, "1+" * 600 + "1",
        "lambda: 1", "[1 for x in 1]", "1;2", "1 if 1 else 2", "2^2^2^2^2^2",
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_said(expression: str) -> None:
    with pytest.raises(ArithmeticFailure):
        evaluate(expression)


async def test_the_calculator_answers_the_number_alone_or_says_why_not(bench: Bench) -> None:
    assert (await bench.call("calculator", expression="12 * 7")).output == "84"
    wrong = await bench.call("calculator", expression="1/0")
    assert (wrong.success, wrong.error) == (False, "cannot compute '1/0': division by zero")


async def test_a_question_reaches_the_user_and_the_answer_comes_back(bench: Bench) -> None:
    asked = []

    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        asked.append((question, options))
        return "blue"

    bench.ask = ask
    result = await bench.call("ask_user", question="Which\x1b[31m?", options=["red", "dark\nblue"])
    assert result.output == "blue"
    assert asked == [("Which[31m?", ("red", "dark blue"))]


async def test_no_answer_is_an_error_that_says_so(bench: Bench) -> None:
    async def silent(question: str, options: tuple[str, ...]) -> str | None:
        return None

    for ask in (None, silent):
        bench.ask = ask
        result = await bench.call("ask_user", question="?")
        assert not result.success
        assert "nobody" in result.error


def test_m9_only_whole_plain_web_addresses_may_be_opened() -> None:
    good = (
        "https://example.org/",
        "http://localhost:8080/a?b=c#d",
        "https://xn--bcher-kva.example/%C3%BC",
        "HTTPS://example.org",
        "http://[::1]:8080/",
    )
    bad = (
        "",
        "example.org",
        "//example.org",
        "http://",
        "https:example.org",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://example.org/",
        "mailto:ada@example.org",
        "vscode://file/x",
        "--help",
        "https://ada@example.org/",
        "https://example.org:pass@evil.example/",
        "https://example.org\\@evil.example/",
        "https://example.org/ x",
        "https://example.org/\nx",
        "https://example.org/\x1b[2J",
        "https://b\u00fccher.example/",
        "https://example.org/\u202egpj",
        "https://example.org:99999/",
        "https://[::1/",
        "https://example.org/" + "x" * 2_000,
    )
    assert [url for url in good if problem_of(url)] == []
    assert [url for url in bad if not problem_of(url)] == []


async def test_m9_a_page_is_opened_by_the_person_who_is_there_or_not_at_all(bench: Bench) -> None:
    url = "https://example.org/"
    asked: list[str] = []
    for answer, told in {
        PAGE_OPENED: "the page was opened",
        "": "the user does not want it",
        None: "nobody answered",
        "xdg-open is not on this machine": "xdg-open is not on this machine",
    }.items():

        async def open_page(wanted: str, answer: str | None = answer) -> str | None:
            asked.append(wanted)
            return answer

        bench.open_page = open_page
        result = await bench.call("open_url", url=url)
        assert told in (result.output or result.error)
        assert result.success is (answer == PAGE_OPENED)
    assert asked == [url] * 4
    bench.open_page = None
    assert "nobody" in (await bench.call("open_url", url=url)).error
    assert bench.risk("open_url", url="file:///etc/passwd").blocked
    assert not bench.risk("open_url", url=url).blocked
