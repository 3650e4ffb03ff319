"""The tools of the web."""

import json
