"""What docs/use-with.md says to write, written and run: the page is the only source."""

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.daemon import AFTER_TOOL, MODELS, SAID, Gateway, gateway
from tests.clients.places import ROOT, program, python_of

pytestmark = [
    pytest.mark.sdks,
    pytest.mark.daemon,
    pytest.mark.real_model,
    pytest.mark.timeout(900),
]

PAGE = (ROOT / "docs" / "use-with.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8686"
SECTIONS = {
    section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)
}
NOT_RUN = "Open WebUI, Continue, Copilot, Zed"
FOUND = "There is plan.txt."
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("page")) as found:
        yield found


def blocks(section: str, language: str) -> list[str]:
    fenced = rf"^```{language}\n(.+?)^```$"
    return re.findall(fenced, SECTIONS[section], re.MULTILINE | re.DOTALL)


def run(served: Gateway, *command: str) -> str:
    """Run a program to its end and return what it printed."""
    done = subprocess.run(
        command,
        env=served.environ(),
        cwd=served.home.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(served: Gateway, section: str, number: int = 0) -> str:
    """Run a snippet of a section with the address and key of this daemon."""
    code = blocks(section, "python")[number]
    assert ADDRESS in code
    assert '"KEY"' in code or "Bearer KEY" in code
    filled = code.replace(ADDRESS, served.url).replace("KEY", served.key)
    return run(served, python_of("sdks"), "-c", filled)


def test_every_snippet_of_the_page_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    for section in SECTIONS:
        for number, _ in enumerate(blocks(section, "python")):
            assert f'shown(served, "{section}"{f", {number}" if number else ""})' in here
    assert PAGE.count("```python") == 5
    assert [section for section in SECTIONS if blocks(section, "yaml")] == ["llm", NOT_RUN]
    assert "not run by our tests" in SECTIONS[NOT_RUN]


def test_openais_sdk(served: Gateway) -> None:
    assert shown(served, "OpenAI's SDK") == f"{FOUND}\n{FOUND}"
    ticket = json.loads(shown(served, "OpenAI's SDK", 1))
    assert set(ticket) == {"title", "urgency"}
    assert ticket["urgency"] in {"low", "high"}


def test_anthropics_sdk(served: Gateway) -> None:
    assert shown(served, "Anthropic's SDK") == f"tool_use\ntext\n{AFTER_TOOL}\n"


def test_ollamas_library(served: Gateway) -> None:
    said, listed = shown(served, "Ollama's library").splitlines()
    assert said == SAID
    assert sorted(ast.literal_eval(listed)) == MODELS


def test_langchain(served: Gateway) -> None:
    assert shown(served, "LangChain") == f"{AFTER_TOOL}\n"


def test_llm(served: Gateway) -> None:
    folder = Path(served.environ()["LLM_USER_PATH"])
    folder.mkdir()
    (entry,) = blocks("llm", "yaml")
    (folder / "extra-openai-models.yaml").write_text(entry.replace(ADDRESS, served.url))
    (session,) = blocks("llm", "console")
    outputs = [
        run(served, program("sdks", "llm"), *shlex.split(line.replace("KEY", served.key))[2:])
        for line in session.splitlines()
    ]
    assert outputs[-1] == f"{FOUND}\n"
