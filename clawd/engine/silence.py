"""How long a worker has said nothing, to a watcher that may have stood still meanwhile."""


class Silence:
    """Adds up the time between looks, no more for each than was to pass until it.

    Where the watching process got no processor, was stopped or blocked its loop, a worker may have
    said something that is not read yet.
    """

    def __init__(self) -> None:
        self._heard_at = float("-inf")
        self._looked_at = 0.0
        self._counted_s = 0.0

    def look(self, now: float, heard_at: float, pause_s: float) -> float:
        """Return the seconds of silence.

        Args:
            now: the time of this look.
            heard_at: when the worker was heard of last, or its work began.
            pause_s: how long the watcher meant to wait before this look.
        """
        if heard_at != self._heard_at:
            self._heard_at = self._looked_at = heard_at
            self._counted_s = 0.0
        self._counted_s += min(now - self._looked_at, pause_s)
        self._looked_at = now
        return self._counted_s
