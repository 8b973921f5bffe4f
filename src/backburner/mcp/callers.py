"""Facts about the program behind a request, in the memory of one server."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from ..core.task import LOCAL_OWNER
from .requests import RequestContext, client_of, owner_of_request
from .sdk import channel_of

T = TypeVar("T")

#: Entries for requests without a connection; the oldest are dropped.
_MOST = 1000


class PerCaller(Generic[T]):
    """One value for each caller: a connection, or else an owner's client of one name and version."""

    def __init__(self) -> None:
        self._by_channel: WeakKeyDictionary[object, T] = WeakKeyDictionary()
        self._by_owner: OrderedDict[tuple[str, str, str], T] = OrderedDict()

    def get(self, ctx: RequestContext) -> T | None:
        channel = channel_of(ctx.session)
        return self._by_owner.get(_owner_key(ctx)) if channel is None else self._by_channel.get(channel)

    def put(self, ctx: RequestContext, value: T) -> None:
        channel = channel_of(ctx.session)
        if channel is not None:
            self._by_channel[channel] = value
            return
        key = _owner_key(ctx)
        self._by_owner[key] = value
        self._by_owner.move_to_end(key)
        while len(self._by_owner) > _MOST:
            self._by_owner.popitem(last=False)

    def discard(self, ctx: RequestContext) -> None:
        channel = channel_of(ctx.session)
        if channel is None:
            self._by_owner.pop(_owner_key(ctx), None)
        else:
            self._by_channel.pop(channel, None)


def is_one_caller(ctx: RequestContext) -> bool:
    """Return whether a value of PerCaller is of one program, or at least of one owner.

    Anonymous requests without a connection may come from any program.
    """
    return channel_of(ctx.session) is not None or owner_of_request() != LOCAL_OWNER


def _owner_key(ctx: RequestContext) -> tuple[str, str, str]:
    return owner_of_request(), *client_of(ctx)
