"""POST /clawctl/{act}: which words a command gets, and what is refused before one runs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.channels.http.model_api import Caller
from clawd.channels.http.page import ACTS
from clawd.errors import InvalidRequestError
from tests.channels.http.rig import served
from tests.support.inprocess import OWNER
from tests.support.rows import each_row

URL = "https://x.example/mcp"


def words(act: str, **values: Any) -> tuple[str, ...]:
    """Return the words of an act, as a request's body gives its parameters."""
    return msgspec.convert(values, ACTS[act]).words()


def test_parameters_stand_where_no_option_is_looked_for() -> None:
    made = words("add_server", alias="a", command=["run", "--read", "/"], hosts=["--network"])
    assert made[:3] == ("mcp", "add", "--json")
    assert made[3:5] == ("--host=--network", "--workspace=read")
    assert made[5:] == ("--", "a", "run", "--read", "/")
    assert words("add_server", alias="a", url=URL)[-3:] == ("--", "a", URL)
    switched = words("switch_server", alias="a", on=False)
    assert switched[-3:] == ("--", "mcp.servers.a.enabled", "false")
    assert words("remove_server", alias="a")[-2:] == ("--", "a")
    assert words("use_model", name="qwen3-4b.Q4_K_M")[-2:] == ("--", "qwen3-4b.Q4_K_M")
    assert words("recommend_models") == ("model", "recommend", "--json")


@each_row(
    ("act", "values"),
    [
        ("add_server", {"alias": "a"}),
        ("add_server", {"alias": "a", "url": URL, "command": ["x"]}),
        ("add_server", {"alias": "a", "url": "file:///etc/passwd"}),
        ("add_server", {"alias": "-a", "url": URL}),
        ("add_server", {"alias": "a.enabled", "url": URL}),
        ("add_server", {"alias": "a\nb", "url": URL}),
        ("add_server", {"alias": "a", "command": ["x"], "auth_env": "HOME"}),
        ("add_server", {"alias": "a", "command": ["x"], "readonly_paths": ["/"]}),
        ("switch_server", {"alias": 'a"', "on": True}),
        ("switch_server", {"alias": "a", "on": "true"}),
        ("remove_server", {"alias": ""}),
        ("use_model", {"name": "--file=/etc/passwd"}),
        ("use_model", {"name": "../model"}),
        ("remove_server", {"alias": "a\n"}),
    ],
)
def test_what_is_no_such_parameter_is_refused(act: str, values: dict[str, Any]) -> None:
    with pytest.raises((msgspec.ValidationError, InvalidRequestError)):
        words(act, **values)


async def test_it_takes_an_admin_a_known_act_and_the_config_that_clawctl_would_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWD_HOME", str(tmp_path / "elsewhere"))
    async with served(tmp_path) as door:
        status, told = await door.post("/clawctl/remove_server", {"alias": "a"})
        assert (status, "the config in force is" in told["error"]["message"]) == (400, True), told
        assert (await door.post("/clawctl/estop", {}))[0] == 404
        assert (await door.post("/clawctl/remove_server", {}))[0] == 400
        door.caller = Caller(principal=OWNER, scopes=frozenset({"chat", "tools"}), key_id="k1")
        assert (await door.post("/clawctl/remove_server", {"alias": "a"}))[0] == 403
