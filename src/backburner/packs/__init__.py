"""Packs: ready-to-use slow tools, as examples. Each is an app, `bb`, and has `add_to(app)`.

They have dependencies of their own: the extras `files` and `science`. The tools named `wksm_…` have the names
of the source document on asynchronous tools, so that its clients can use them.
"""

__all__ = ["files", "science"]
