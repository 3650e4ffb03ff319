"""How many files and functions one message goes through stays what one can follow."""

import pytest

from tests.walk import walked

MOST_FILES = 74
MOST_FUNCTIONS = 548


@pytest.mark.daemon
def test_a_message_with_one_call_goes_through_no_more_than_it_did() -> None:
    found = walked()
    print(*found, sep="\n")
    assert "clawd/tools/dispatch.py" in found
    assert len(found) <= MOST_FILES
    assert sum(map(len, found.values())) <= MOST_FUNCTIONS
