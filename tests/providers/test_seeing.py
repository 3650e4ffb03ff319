"""Which models see pictures: by the operator's word, by their names, behind others if all do."""

from clawd.channels.http.catalogue import capabilities_of
from clawd.config.schema import ProviderSection
from clawd.providers.base import ChatRequest, Message, sees, sees_by_name
from clawd.providers.openai import OpenAICompatibleProvider
from clawd.providers.reliable import ReliableProvider
from clawd.providers.router import RoutedProvider, RouterProvider
from clawd.providers.scripted import ScriptedProvider, parse_script
from tests.support.collecting import collect
from tests.support.pictures import picture
from tests.support.rows import each_row

SEEING = (
    "gpt-4o gpt-4o-mini gpt-4-turbo gpt-4.1-nano gpt-5-mini o1 o3 o4-mini claude-3-haiku-20240307 "
    "claude-sonnet-4-5 gemini-2.0-flash llama-3.2-11b-vision-instruct qwen2.5-vl-7b qwen3-vl:8b "
    "llava:13b gemma3:4b gemma-3-27b-it pixtral-12b mistral-small-3.1 minicpm-v phi-4-multimodal"
)
BLIND = (
    "gpt-3.5-turbo gpt-4 o1-mini o3-mini claude-2.1 qwen2.5-7b mistral-7b gemma3:1b gemma-3-270m "
    "deepseek-chat llama-3.3-70b text-embedding-3-small gpt-4o-audio-preview foo1 marvlous"
)


@each_row(("names", "expected"), [(SEEING, True), (BLIND, False)])
def test_names_of_known_families_tell(names: str, expected: bool) -> None:
    assert {name for name in names.split() if sees_by_name("auto", name) != expected} == set()


def test_the_operator_knows_better() -> None:
    assert sees_by_name("yes", "gpt-3.5-turbo")
    assert not sees_by_name("no", "gpt-4o")


def test_a_provider_is_asked_about_the_model_that_would_answer() -> None:
    url = "http://127.0.0.1:1/v1"
    section = ProviderSection(kind="openai-compatible", base_url=url, model="gpt-4o")
    provider = OpenAICompatibleProvider("cloud", section)
    assert sees(provider, "")
    assert not sees(provider, "gpt-4")


@each_row(("each", "expected"), [([True, True], True), ([True, False], False)])
def test_of_equals_behind_a_router_all_must_see(each: list[bool], expected: bool) -> None:
    behind = [ScriptedProvider(f"m{n}", vision=vision) for n, vision in enumerate(each)]
    router = RouterProvider("r", [RoutedProvider(provider=one) for one in behind])
    assert sees(router, "") is expected


async def test_a_chain_goes_on_to_who_sees_what_the_first_was_shown() -> None:
    broken = parse_script('{"replies": [{"error": {"kind": "http", "status": 500}}]}')
    first = ScriptedProvider("first", broken)
    blind, seeing = ScriptedProvider("blind", vision=False), ScriptedProvider("seeing")
    chain = ReliableProvider("chain", [first, blind, seeing])
    assert sees(chain, "")
    shown = Message(role="user", content="x", pictures=(picture(),))
    assert (await collect(chain.chat(ChatRequest(messages=(shown,))))).provider == "seeing"
    told = Message(role="user", content="x")
    assert (await collect(chain.chat(ChatRequest(messages=(told,))))).provider == "blind"


def test_listings_name_it_among_what_a_model_can_do() -> None:
    assert capabilities_of(ScriptedProvider(), "") == ("completion", "tools", "vision")
    assert capabilities_of(ScriptedProvider(vision=False, tools=False), "") == ("completion",)
