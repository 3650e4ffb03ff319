"""What each token of a conversation is to training, as `prepare` writes it and `train` reads it."""

GIVEN, ANSWER, CALL, KNOWN = range(4)
CHOICE = 8  # is added where something is chosen: a tool, an argument, a line, how to reckon
