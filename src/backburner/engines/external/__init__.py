"""Engines whose workers run elsewhere: Celery, Dramatiq, Slurm and AWS Batch."""
