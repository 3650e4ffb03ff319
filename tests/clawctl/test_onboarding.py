"""What `onboard` finds on this machine and makes of the answers."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from clawctl.model_servers import FoundServer, find_servers
from clawctl.onboarding import Now, OnboardingAnswers, ask
from clawd.config.schema import ProviderSection
from clawd.config.secrets import provider_key
from clawd.errors import ConfigError
from clawd.paths import layout
from tests.support.model_server import ModelServer, model_server

OLLAMA = FoundServer(
    program="Ollama", url="http://127.0.0.1:11434/v1", models=("qwen3:4b", "llama3.2:3b")
)
ALONE = FoundServer(program="vLLM", url="http://127.0.0.1:8000/v1", models=("org/one",))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as made:
        yield made


def asked(
    now: Now, typed: str, given: OnboardingAnswers | None = None
) -> tuple[OnboardingAnswers, str]:
    """Return what the questions come to when this is typed, and what is displayed."""
    where = layout({"HOME": "/nonexistent"})
    with CliRunner().isolation(input=typed) as (out, *_):
        answers = ask(given or OnboardingAnswers(autonomy="full"), now, where, may_serve=False)
        return answers, out.getvalue().decode()


def fresh(**more: object) -> Now:
    about = {"provider": "local", "workspace": "/w", "autonomy": "full", "is_new": True}
    return Now(**(about | more))  # type: ignore[arg-type]


def test_p10_servers_of_this_machine_are_found_with_their_models(server: ModelServer) -> None:
    server.documents["/v1/models"] = {"data": [{"id": "a", "owned_by": "llamacpp"}, {"id": "b"}, 3]}
    with model_server() as page, socket.create_server(("127.0.0.1", 0)) as silent:
        page.documents["/v1/models"] = ["no list of models"]
        dead = socket.create_server(("127.0.0.1", 0))
        ports = {
            dead.getsockname()[1]: "Ollama",
            silent.getsockname()[1]: "LM Studio",
            page.port: "vLLM",
            server.port: "Ollama",
        }
        dead.close()
        began = time.monotonic()
        found = find_servers(ports)
        assert time.monotonic() - began < 10.0
    url = f"http://127.0.0.1:{server.port}/v1"
    assert found == [FoundServer(program="llama-server", url=url, models=("a", "b"))]


def test_p10_what_runs_here_is_offered_and_is_the_likely_answer() -> None:
    answers, shown = asked(fresh(servers=(OLLAMA,)), "\nllama3.2:3b\n\n")
    assert "5  Ollama, which runs here at http://127.0.0.1:11434/v1: qwen3:4b, llama3.2:3b" in shown
    assert (answers.source, answers.base_url) == ("openai", OLLAMA.url)
    assert answers.model == "llama3.2:3b"
    answers, shown = asked(fresh(servers=(ALONE,)), "\n\n")
    assert answers.model == "org/one"
    assert "Which model" not in shown


def test_p10_a_model_that_fits_is_offered_for_download_where_an_engine_is() -> None:
    answers, shown = asked(fresh(fits=("qwen3-4b", 2.5)), "5\n\n")
    assert "5  download a model that fits this machine: qwen3-4b, 2.5 GB" in shown
    assert (answers.source, answers.pull) == ("gguf", "qwen3-4b")
    _, shown = asked(fresh(fits=("qwen3-4b", 2.5), has_engine=False, servers=(ALONE,)), "5\n\n")
    assert "download" not in shown


def test_p10_an_address_is_no_folder_and_no_file() -> None:
    answers, shown = asked(fresh(), "1\nhttp://localhost:8080/v1\n/w\n")
    assert "That is an address" in shown
    assert answers.workspace == "/w"
    answers, _ = asked(fresh(), "2\nhf:org/repo:Q8_0\n\n")
    assert (answers.source, answers.pull, answers.model) == ("gguf", "hf:org/repo:Q8_0", "")


def test_p10_a_server_that_does_not_answer_is_said_to_be_so() -> None:
    _, shown = asked(fresh(), "3\nhttp://127.0.0.1:1/v1 m\n\n")
    assert "nobody answers at http://127.0.0.1:1/v1 now" in shown


def test_p10_a_key_that_the_daemon_does_not_see_is_told_with_how_it_gets_it(tmp_path: Path) -> None:
    section = ProviderSection(kind="anthropic", model="m", api_key_env="MY_KEY")
    with pytest.raises(ConfigError) as caught:
        provider_key("claude", section, {})
    assert "MY_KEY" in caught.value.message
    assert "clawctl restart" in caught.value.hint
