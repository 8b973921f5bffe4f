"""Values as trees for people: folded where they are deep or large, and never more than a page can show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

#: In all; of one list or object; of one text; and so deep.
_MOST_NODES, _MOST_CHILDREN, _MOST_CHARS, _DEEPEST = 800, 100, 2_000, 16
#: A text that is all there is; and of all texts together.
_MOST_TEXT, _MOST_OF_ALL = 20_000, 60_000
#: What is deeper or has more in it is folded at first.
_OPEN_DEPTH, _OPEN_CHILDREN = 2, 12


@dataclass(slots=True)
class Node:
    """`text` is a plain value as JSON, or a text without its quotes. `left_out` counts what is not shown."""

    kind: str
    key: str = ""
    text: str = ""
    count: int = 0
    left_out: int = 0
    is_open: bool = False
    children: Sequence[Node] = field(default_factory=list)


def tree_of(value: Any) -> Node:
    return _Budget(_MOST_NODES).node("", value, 0)


class _Budget:
    """How many nodes may still be made, and of how many characters."""

    def __init__(self, left: int) -> None:
        self.left, self.chars = left, _MOST_OF_ALL

    def node(self, key: str, value: Any, depth: int) -> Node:
        self.left -= 1
        key = key if len(key) <= 200 else f"{key[:200]}…"
        if isinstance(value, str):
            most = min(_MOST_CHARS if depth else _MOST_TEXT, max(self.chars, 40))
            self.chars -= min(most, len(value))
            return Node("text", key, value[:most], len(value), max(0, len(value) - most))
        if not isinstance(value, dict | list):
            text = json.dumps(value)
            kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else "word"
            return Node(kind, key, text[:_MOST_CHARS], left_out=max(0, len(text) - _MOST_CHARS))
        kind = "object" if isinstance(value, dict) else "list"
        children = list(self._children(value, depth)) if depth < _DEEPEST else []
        is_open = depth < _OPEN_DEPTH and (depth == 0 or len(value) <= _OPEN_CHILDREN)
        return Node(kind, key, "", len(value), len(value) - len(children), is_open, children)

    def _children(self, value: dict[str, Any] | list[Any], depth: int) -> Iterator[Node]:
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for at, (key, one) in enumerate(named):
            if at == _MOST_CHILDREN or self.left <= 0:
                return
            yield self.node(str(key), one, depth + 1)
