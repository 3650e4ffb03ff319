"""What `clawd --checkup --json` prints: facts for `clawctl doctor`, found without a daemon."""

import msgspec


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """How this clawd stands by its config; all but `problems` is empty when that is not valid.

    Attributes:
        problems: what is wrong with the config, a line each.
        sandbox: the level that was found by trying it, with what it holds and what it does not.
        toolchains: what commands see of the person's programs, and what is left out of it, and why.
        old_networks: the MCP servers that are given the network as such, and not by hosts.
        hooks: the owner's programs that are told of calls and turns, and which are not there.
        provider_url: where the default provider is asked, empty for a usual place.
        model: the local model that the default provider answers from, why it cannot be had, and
            what to do about that.
        gateway: host and port where the HTTP gateway would listen; port 0 for off.
    """

    config: str
    config_exists: bool = False
    problems: tuple[str, ...] = ()
    hint: str = ""
    sandbox: str = ""
    sandbox_reason: str = ""
    sandbox_layers: tuple[str, ...] = ()
    sandbox_unbounded: tuple[str, ...] = ()
    toolchains: tuple[str, ...] = ()
    toolchains_left_out: tuple[str, ...] = ()
    old_networks: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    hooks_missing: tuple[str, ...] = ()
    workspace: str = ""
    memory: str = ""
    receipts: str = ""
    receipts_enabled: bool = True
    provider: str = ""
    provider_kind: str = ""
    provider_url: str = ""
    key_variable: str = ""
    model: str = ""
    model_problem: str = ""
    model_hint: str = ""
    gateway: tuple[str, int] = ("", 0)
