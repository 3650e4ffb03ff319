"""Procedures (SOPs): fixed steps that run by themselves, durably and under the policy."""
