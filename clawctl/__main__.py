"""`python -m clawctl`."""

import sys

from clawctl.main import main

sys.exit(main())
