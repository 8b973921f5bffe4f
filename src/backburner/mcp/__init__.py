"""Everything that knows MCP: the dialects, completion, adapters for frameworks, and serving."""
