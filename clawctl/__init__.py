"""clawctl: the thin client of clawd."""
