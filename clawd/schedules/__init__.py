"""Turns that begin by the clock, by a file or by a request: when, whether, and how they are run."""
