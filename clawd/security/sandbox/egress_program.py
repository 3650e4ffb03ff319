"""The program of the two processes that egress needs: `python -I -S -E egress_program.py ROLE FD`.

It is short, for Python compiles it anew each time, and finds clawd by its own place.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120 - pathlib takes longer to import than the helper needs in all

if __name__ == "__main__":
    sys.path.append(ROOT)
    if sys.argv[1] == "enter":
        from clawd.security.sandbox.egress_enter import main
    else:
        from clawd.security.sandbox.egress_proxy import main
    sys.exit(main(int(sys.argv[2])))
