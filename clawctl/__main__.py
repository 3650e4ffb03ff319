"""`python -m clawctl`, and what the installed command calls."""

import gc
import sys


def run() -> int:
    """Run clawctl; see `clawctl.main.main`."""
    # Nothing that is imported here is ever garbage, and looking for garbage among it costs a
    # one-shot command 5 ms. `LazyGroup` turns the collector on again when the command is loaded.
    gc.disable()
    from clawctl.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
