"""The supervisor process: claims tasks, dispatches them to runners and writes their reports."""
