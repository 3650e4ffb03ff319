"""clawd: a local-first agent daemon for Linux."""

__version__ = "0.1.0"
