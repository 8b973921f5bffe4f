"""Time-outs of clients: the last few of each are kept."""

from __future__ import annotations

from ...client_time_outs import KEPT_OF_A_CLIENT, KEPT_OF_ALL, ClientTimeOut
from ...store import Store
from .base import StoreTests


def time_out(name: str = "host", seen_at: int = 1, waited_ms: int = 5000) -> ClientTimeOut:
    return ClientTimeOut(name, "1.0", "stdio", seen_at, waited_ms, waited_ms)


class Clients(StoreTests):
    def test_the_last_time_outs_of_each_client_are_kept(self, store: Store) -> None:
        assert store.time_outs() == []
        other = ClientTimeOut("host", "1.0", "http", 1, 60_000, 400)
        store.keep_time_out(other)
        seen = [time_out(seen_at=at) for at in range(1, KEPT_OF_A_CLIENT + 3)]
        for one in seen:
            store.keep_time_out(one)
        store.keep_time_out(seen[-1])
        assert store.time_outs() == [other, *seen[2:]]

    def test_however_many_names_clients_give_the_oldest_make_room(self, store: Store) -> None:
        for at in range(1, KEPT_OF_ALL + 3):
            store.keep_time_out(time_out(f"host {at}", at))
        assert sorted(one.seen_at for one in store.time_outs()) == list(range(3, KEPT_OF_ALL + 3))

    def test_time_outs_are_forgotten_as_they_are_disproved_and_when_one_asks(self, store: Store) -> None:
        for at, waited_ms in enumerate((1000, 5000, 9000)):
            store.keep_time_out(time_out(seen_at=at, waited_ms=waited_ms))
        other = time_out("other")
        store.keep_time_out(other)
        assert store.disprove_time_outs("host", "1.0", "http", 9000) == 0
        assert store.disprove_time_outs("host", "1.0", "stdio", 5001) == 2
        assert store.time_outs() == [time_out(seen_at=2, waited_ms=9000), other]
        assert store.forget_time_outs("nobody") == 0
        assert store.forget_time_outs("host") == 1
        assert store.time_outs() == [other]
        assert store.forget_time_outs() == 1
        assert store.time_outs() == []
