"""Child processes of a supervisor: zygotes and the runners that they fork."""
