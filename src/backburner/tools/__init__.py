"""Tools: how an author declares one, and how one attempt of it is executed."""
