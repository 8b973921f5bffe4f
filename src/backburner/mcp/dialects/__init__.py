"""The dialects: a room for each, with both its sides."""
