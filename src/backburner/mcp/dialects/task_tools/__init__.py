"""The task tools, for agents whose clients know no tasks."""
