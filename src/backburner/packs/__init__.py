"""Packs: slow tools that are ready to use. Each is an app, `bb`, and has `add_to(app)` for other apps."""
