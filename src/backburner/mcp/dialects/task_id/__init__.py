"""The TaskId contract, for hosts that name their tasks themselves."""
