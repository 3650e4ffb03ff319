"""The program that `confine` is started by: `python -I -S -E confine_program.py …`.

It is short, for Python compiles it anew each time, and finds clawd by its own place.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120 - pathlib alone takes longer to import than all of this

if __name__ == "__main__":
    sys.path.append(ROOT)
    from clawd.security.sandbox.confine import main

    sys.exit(main(sys.argv[1:]))
