"""The two-stage return, for clients that know no tasks."""
