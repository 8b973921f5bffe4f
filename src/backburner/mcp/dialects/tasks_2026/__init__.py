"""The tasks extension of MCP 2026-07-28."""
