"""What happens in the daemon beside turns, for whoever follows all of it."""

import msgspec


class EstopChanged(msgspec.Struct, frozen=True, kw_only=True, tag="estop_changed"):
    """The emergency stop was set or cleared; `estop_state` says why."""

    is_set: bool
