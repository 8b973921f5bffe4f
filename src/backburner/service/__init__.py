"""Services: the rules for submitting, reading and steering tasks."""
