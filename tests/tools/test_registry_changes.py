"""Who is told when the tools of a registry have changed."""

import pytest

from clawd.errors import InvalidRequestError
from clawd.tools.builtin.calculator import CalculatorTool
from clawd.tools.registry import Registry


def test_a_listener_is_told_of_each_change_until_it_ends() -> None:
    registry, told = Registry(), list[int]()
    end = registry.on_change(lambda: told.append(len(registry.all())))
    registry.add(CalculatorTool())
    with pytest.raises(InvalidRequestError):
        registry.add(CalculatorTool())
    registry.replace([])
    end()
    end()
    registry.replace([CalculatorTool()])
    assert told == [1, 0]


def test_two_listeners_that_are_the_same_end_one_by_one() -> None:
    registry, told = Registry(), list[str]()

    def listener() -> None:
        told.append("told")

    first, _second = registry.on_change(listener), registry.on_change(listener)
    registry.replace([])
    first()
    registry.replace([])
    assert len(told) == 3
