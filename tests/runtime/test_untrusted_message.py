"""A message whose sender says that it holds untrusted text taints its conversation."""

import pytest

from clawd.errors import InvalidRequestError
from clawd.runtime.incoming import MAX_UNTRUSTED
from tests.runtime.inboxes import House
from tests.runtime.models import says
from tests.runtime.test_agents_md import Working
from tests.security.fakes import ADA
from tests.support.dispatching import Bench
from tests.support.rows import each_row

TERMINAL = "terminal output"


async def test_it_taints_before_the_model_sees_it_and_for_good(bench: Bench) -> None:
    house = Working(bench)
    conversation = (await house.say("plain")).conversation_id
    await house.say("look at this", conversation, untrusted=(TERMINAL,))
    assert house.watching.tainted == [False, True]
    assert bench.taint.sources(conversation) == (TERMINAL,)
    house.restart()
    await house.book.load(conversation, ADA)
    assert bench.taint.sources(conversation) == (TERMINAL,)


async def test_other_conversations_stay_as_they_are(bench: Bench) -> None:
    house = House(bench, says("ok"))
    await house.say("look", untrusted=(TERMINAL,))
    other = await house.say("plain")
    assert not bench.taint.is_tainted(other.conversation_id)


async def test_a_name_is_one_short_line(bench: Bench) -> None:
    house = House(bench, says("ok"))
    said = await house.say("look", untrusted=("a\x1b[2J\n" + "b" * 1_000,))
    (source,) = bench.taint.sources(said.conversation_id)
    assert source.startswith("a [2J b")
    assert len(source) == 200


@each_row("untrusted", [(" ",), ("",), ("x",) * (MAX_UNTRUSTED + 1)], fresh=["bench"])
async def test_no_name_and_too_many_are_refused(bench: Bench, untrusted: tuple[str, ...]) -> None:
    house = House(bench, says("ok"))
    with pytest.raises(InvalidRequestError, match="untrusted names"):
        await house.say("look", untrusted=untrusted)
