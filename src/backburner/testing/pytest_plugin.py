"""The pytest plugin: the fixture `inline_tasks`. pytest finds it by itself where Backburner is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .inline import Answers, InlineTasks


@pytest.fixture
def inline_tasks() -> Iterator[Callable[..., InlineTasks]]:
    """`inline_tasks(app, answers=…)`: the tasks of an app or a server run inline until the test is over."""
    from contextlib import ExitStack

    from . import inline

    with ExitStack() as stack:
        stack.enter_context(inline())

        def use(*apps: Any, answers: Answers | None = None) -> InlineTasks:
            return stack.enter_context(inline(*apps, answers=answers))

        yield use
