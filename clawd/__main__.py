"""`python -m clawd` runs the daemon."""

import sys

from clawd.service.main import main

if __name__ == "__main__":
    sys.exit(main())
