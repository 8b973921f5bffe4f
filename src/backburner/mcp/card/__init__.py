"""The task card: a page in the chat that shows a task while it runs, by MCP Apps."""
