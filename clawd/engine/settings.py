"""How the supervisor treats its workers: limits and times. Values only."""

import msgspec


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times of the supervisor; every time is in seconds.

    Attributes:
        keep_alive_s: an idle model is unloaded after this; 0 at once, negative never.
        max_loaded: models in memory at one time.
        load_timeout_s: a load that takes longer is ended.
        template_timeout_s: from a request to an idle worker to its first sign of life; only the
            chat template is rendered in that time.
        step_timeout_s: the longest silence while work is pending; a step of a big model on a slow
            machine must fit.
        ping_interval_s: silence after which a worker with pending work is asked for a sign.
        quit_grace_s: from Quit to SIGKILL; a worker takes up to half of it to save what it keeps.
        backoff_initial_s: wait before the restart after the first death; doubles with each.
        backoff_max_s: the longest such wait.
        max_prompt_deaths: a prompt that was running in so many deaths is refused.
    """

    keep_alive_s: float = 300.0
    max_loaded: int = 2
    load_timeout_s: float = 120.0
    template_timeout_s: float = 5.0
    step_timeout_s: float = 60.0
    ping_interval_s: float = 1.0
    quit_grace_s: float = 8.0
    backoff_initial_s: float = 0.5
    backoff_max_s: float = 30.0
    max_prompt_deaths: int = 2
