"""Webhooks: an endpoint is told, at least once, that a task is over.

`hooks` says which endpoints a new task has, `message` what they are told. The store writes that with the
task's end (`outbox`), and `sender`, in the supervisor, delivers it (`post`, `signature`).
"""
