"""Retry policy of a tool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import force_setattr, replace

if TYPE_CHECKING:
    from .task import TaskError


#: More would be no number any more, and is longer than any longest wait.
_MOST_DOUBLINGS = 64
#: A name of an error type or of an exception class, the class itself, or a function that says of an exception
#: whether to try again.
Cause = str | type[BaseException] | Callable[[BaseException], bool]
if TYPE_CHECKING:
    Causes = Cause | Iterable[Cause]
else:
    Causes = tuple[str, ...]  # other processes get names alone, and msgspec decodes by this type


class Retry(Struct, frozen=True):
    """Retry policy: decides whether another attempt follows a failure.

    `max_attempts` counts all tries. `on` is one cause or several: error types (`worker_lost`,
    `tool_error`, …), exception classes or their names, which stand for their subclasses too, and
    functions of the exception; `*` stands for every failure. The wait doubles with each failure.
    """

    max_attempts: int = 3
    backoff_s: float = 1.0
    on: Causes = ("worker_lost",)
    max_backoff_s: float = 300.0

    def __post_init__(self) -> None:
        several = isinstance(self.on, Iterable) and not isinstance(self.on, str | type)
        force_setattr(self, "on", tuple(cast(Any, self.on)) if several else (self.on,))

    @property
    def causes(self) -> tuple[Cause, ...]:
        return cast(tuple[Cause, ...], self.on)

    @property
    def kept(self) -> Retry:
        """The same with names alone, as a store keeps it. The name of a function is for people."""
        return replace(self, on=tuple(map(_name_of, self.causes)))

    def covers(self, error: BaseException) -> bool:
        """Return whether an exception is one of the causes. Raises what the functions among them raise."""
        family = {kind.__name__ for kind in type(error).__mro__}
        return any(_is_cause(cause, error, family) for cause in self.causes)

    def delay_s(self, error: TaskError, failures: int, *, retryable: bool = False) -> float | None:
        """Seconds to wait after failure number `failures`, or None when there is no further try.

        `retryable` is what `covers` said, in the process where the exception was. A lost worker is no
        fault of the tool, so its task need not wait for the first retry.
        """
        if failures >= self.max_attempts:
            return None
        if not retryable and not {"*", error.type, error.exception} & set(self.causes):
            return None
        if error.type == "worker_lost" and failures == 1:
            return 0.0
        return min(self.backoff_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), self.max_backoff_s)


def _is_cause(cause: Cause, error: BaseException, family: Collection[str]) -> bool:
    if isinstance(cause, str):
        return cause in family
    return isinstance(error, cause) if isinstance(cause, type) else bool(cause(error))


def _name_of(cause: Cause) -> str:
    if isinstance(cause, str):
        return cause
    name: str = getattr(cause, "__name__", type(cause).__name__)
    return name if isinstance(cause, type) else f"{name}()"


NO_RETRY = Retry(max_attempts=1, on=())
