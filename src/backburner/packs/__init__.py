"""Packs: slow tools that are ready to use, as examples. Each is an app, `bb`, and has `add_to(app)`.

They are no part of Backburner itself, and have dependencies of their own (the extras `files` and
`science`): whoever wants to know how Backburner works can pass them over. The tools named `wksm_…`
are those of the source document on asynchronous tools, whose server is called WKS: they keep its
names, so that its clients can be pointed here.
"""
