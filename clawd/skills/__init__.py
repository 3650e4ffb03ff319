"""Skills by the Agent Skills standard: folders with a SKILL.md that say how to do a thing."""
