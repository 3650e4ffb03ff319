"""When Ctrl-C was pressed: once stops or clears, three times in a second leave."""

import time

TO_LEAVE = 3
WINDOW_S = 1.0


class Presses(list[float]):
    """The times of the presses, oldest first; a signal handler may add to them."""

    def add(self, count: int = 1) -> None:
        """Take note of presses that were just heard."""
        self.extend([time.monotonic()] * count)

    def are_many(self) -> bool:
        """Tell whether there were enough lately to leave; older ones are forgotten."""
        now = time.monotonic()
        while self and now - self[0] > WINDOW_S:
            del self[0]
        return len(self) >= TO_LEAVE
