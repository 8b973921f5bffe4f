"""The settings of the engines whose workers are elsewhere, a file for each."""
