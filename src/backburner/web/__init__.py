"""What is served beside MCP, for people and programs. `reading.py` and `steering.py` are below all of it."""
