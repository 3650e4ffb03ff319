"""What the service tells the gateway about itself."""

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests can be answered.

    Attributes:
        problem: why not; empty when they can.
        model: the default one.
        model_loaded: whether it answers at once; a remote one counts as loaded.
        slots_processing: generations of local models that run; so many more could: `slots_idle`.
    """

    problem: str = ""
    model: str = ""
    model_loaded: bool = False
    slots_processing: int = 0
    slots_idle: int = 0
