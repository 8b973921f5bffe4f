"""The tasks of MCP 2025-11-25."""
