"""Local engines for tests: an app with its supervisor, which is gone afterwards with all its processes."""
