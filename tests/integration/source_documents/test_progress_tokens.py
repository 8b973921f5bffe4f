"""Progress tokens, as in `progress-and-completion.md`."""

import asyncio
import re
import threading
import time
import tracemalloc
from typing import Any

import pytest

from backburner.errors import InvalidRequest, NoClient, ProgressTimeout, TokenNotFound
from backburner.mcp.progress import ProgressTokens, ProgressUpdate
from backburner.testing import FakeClock
from tests.services import wait_until


class Listener:
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def notify(self, method: str, params: dict[str, Any]) -> None:
        assert method == "notifications/progress"
        self.heard.append(params)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_706_302_400_000)


@pytest.fixture
def tokens(clock: FakeClock) -> ProgressTokens:
    return ProgressTokens(clock=clock)


def test_a_token_is_a_time_and_a_number_and_never_comes_twice(tokens: ProgressTokens) -> None:
    made = [tokens.generate_token() for _ in range(5000)]
    assert len(set(made)) == 5000
    assert all(re.fullmatch(r"1706302400000-\d{5,}", token) for token in made)


def test_tokens_made_by_many_threads_are_all_different(tokens: ProgressTokens) -> None:
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend(tokens.generate_token() for _ in range(1000)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8000


def test_progress_by_percentage(tokens: ProgressTokens) -> None:
    client = Listener()
    tokens.track_tool_call("t", "features", client)
    context = {"current_stage": "extraction", "models_processed": 3}
    tokens.send_progress("t", ProgressUpdate(50.0, message="Processing features...", context=context))
    assert client.heard == [
        {
            "progressToken": "t",
            "progress": 0.5,
            "total": 1,
            "percentage": 50.0,
            "message": "Processing features...",
            "context": context,
            "_meta": {"percentage": 50.0, "context": context},
        }
    ]


def test_progress_by_numbers(tokens: ProgressTokens) -> None:
    client = Listener()
    tokens.track_tool_call("t", "download", client)
    tokens.send_progress("t", ProgressUpdate(absolute=(300, 1000), message="Downloaded 300 of 1000 items"))
    (heard,) = client.heard
    assert (heard["progress"], heard["total"], heard["percentage"]) == (300, 1000, 30)
    tokens.send_progress("t", ProgressUpdate(absolute=(7, 0)))
    assert "percentage" not in client.heard[1]


def test_a_token_keeps_its_scale_and_its_progress_grows(tokens: ProgressTokens) -> None:
    client = Listener()
    tokens.track_tool_call("t", "download", client)
    for update in (
        ProgressUpdate(absolute=(0, None), message="begun"),
        ProgressUpdate(absolute=(300, 1000)),
        ProgressUpdate(absolute=(300, 1000)),
        ProgressUpdate(absolute=(300, 1000), message="still there"),
        ProgressUpdate(absolute=(7, 20)),
        ProgressUpdate(40.0),
        ProgressUpdate(absolute=(-5, 1000)),
        ProgressUpdate(100.0, absolute=(1000, 1000)),
        ProgressUpdate(100.0, absolute=(1000, 1000), message="tidying up"),
    ):
        tokens.send_progress("t", update)
    told = [said["progress"] for said in client.heard]
    assert told == pytest.approx([0, 300, 300, 350, 400, 400, 1000, 1000], abs=1e-5)
    assert told == sorted(set(told))
    assert [said.get("total") for said in client.heard] == [None] + [1000] * 7


def test_progress_is_rounded_and_its_percentage_says_the_same(tokens: ProgressTokens) -> None:
    client = Listener()
    tokens.track_tool_call("t", "download", client)
    for update in (
        ProgressUpdate(100 / 3),
        ProgressUpdate(50.0, absolute=(2, 3)),
        ProgressUpdate(10.0, message="again"),
    ):
        tokens.send_progress("t", update)
    told = [(round(said["progress"], 6), said["percentage"]) for said in client.heard]
    assert told == [(0.333333, 33.33), (0.5, 50.0), (0.5, 50.0)]


def test_a_count_without_an_end_is_told_as_it_is(tokens: ProgressTokens) -> None:
    client = Listener()
    tokens.track_tool_call("t", "download", client)
    for update in (ProgressUpdate(absolute=(10, None)), ProgressUpdate(absolute=(20, 40))):
        tokens.send_progress("t", update)
    told = [{key: said.get(key) for key in ("progress", "total", "percentage")} for said in client.heard]
    assert told == [
        {"progress": 10, "total": None, "percentage": None},
        {"progress": 20, "total": 40, "percentage": 50},
    ]


def test_progress_must_say_how_far_it_is() -> None:
    with pytest.raises(InvalidRequest):
        ProgressUpdate(message="somewhere")


def test_what_is_known_of_a_call_can_be_read(tokens: ProgressTokens, clock: FakeClock) -> None:
    tokens.track_tool_call("t", "index", Listener())
    clock.advance(2)
    tokens.send_progress("t", ProgressUpdate(10))
    call = tokens.get_progress("t")
    assert call.tool_name == "index"
    assert call.active_at - call.started_at == 2000
    assert call.update == ProgressUpdate(10)
    assert tokens.list_active_tokens() == ["t"]


def test_a_call_that_is_over_is_forgotten(tokens: ProgressTokens) -> None:
    tokens.track_tool_call("t", "index", Listener())
    tokens.cleanup_completed("t")
    tokens.cleanup_completed("t")
    assert tokens.list_active_tokens() == []
    tokens.touch("t")
    for ask in (tokens.get_progress, tokens.check_timeout):
        with pytest.raises(TokenNotFound) as caught:
            ask("t")
        assert caught.value.code == "token_not_found"


def test_a_call_without_a_client_keeps_its_progress_and_says_so(tokens: ProgressTokens) -> None:
    tokens.track_tool_call("t", "index")
    with pytest.raises(NoClient) as caught:
        tokens.send_progress("t", ProgressUpdate(10))
    assert caught.value.code == "no_client_pid"
    assert tokens.get_progress("t").update == ProgressUpdate(10)


def test_thirty_seconds_of_silence_end_a_token(tokens: ProgressTokens, clock: FakeClock) -> None:
    client = Listener()
    for token in ("silent", "busy", "touched"):
        tokens.track_tool_call(token, "index", client)
    clock.advance(29)
    tokens.check_timeout("silent")
    tokens.send_progress("busy", ProgressUpdate(1))
    tokens.touch("touched")
    clock.advance(2)
    with pytest.raises(ProgressTimeout) as caught:
        tokens.check_timeout("silent")
    assert caught.value.code == "timeout"
    with pytest.raises(TokenNotFound):
        tokens.send_progress("silent", ProgressUpdate(2))
    tokens.check_timeout("busy")
    tokens.check_timeout("touched")


def test_silent_tokens_go_by_themselves_when_new_ones_come(tokens: ProgressTokens, clock: FakeClock) -> None:
    for number in range(10):
        tokens.track_tool_call(f"old-{number}", "index")
    clock.advance(31)
    tokens.track_tool_call("new", "index")
    assert tokens.list_active_tokens() == ["new"]
    clock.advance(31)
    assert tokens.sweep() == ["new"]


async def swept(tokens: ProgressTokens, token: str) -> None:
    assert await asyncio.to_thread(wait_until, lambda: token not in tokens.list_active_tokens())


async def test_silent_tokens_go_on_a_timer_and_calls_in_progress_stay(clock: FakeClock) -> None:
    tokens = ProgressTokens(sweep_s=0.01, clock=clock)
    tokens.track_tool_call("in progress", "index", in_progress=True)
    tokens.track_tool_call("silent", "index")
    tokens.track_tool_call("busy", "index", Listener())
    clock.advance(29)
    tokens.send_progress("busy", {"percentage": 10})
    clock.advance(2)
    await swept(tokens, "silent")
    assert sorted(map(str, tokens.list_active_tokens())) == ["busy", "in progress"]
    clock.advance(31)
    await swept(tokens, "busy")
    clock.advance(31)
    tokens.check_timeout("in progress")
    tokens.cleanup_completed("in progress")
    assert tokens.list_active_tokens() == []


def test_the_timer_goes_on_in_the_next_event_loop(clock: FakeClock) -> None:
    tokens = ProgressTokens(sweep_s=0.01, clock=clock)

    async def track(token: str, *, to_its_end: bool) -> None:
        tokens.track_tool_call(token, "index")
        clock.advance(31)
        if to_its_end:
            await swept(tokens, token)

    asyncio.run(track("first", to_its_end=False))
    asyncio.run(track("second", to_its_end=True))
    assert tokens.list_active_tokens() == []


def test_the_time_of_silence_is_a_setting(clock: FakeClock) -> None:
    tokens = ProgressTokens(silence_s=1, clock=clock)
    tokens.track_tool_call("t", "index")
    clock.advance(2)
    with pytest.raises(ProgressTimeout):
        tokens.check_timeout("t")


def test_when_a_client_goes_its_tokens_go(tokens: ProgressTokens) -> None:
    gone, there = Listener(), Listener()
    tokens.track_tool_call("a", "index", gone)
    tokens.track_tool_call("b", "index", gone)
    tokens.track_tool_call("c", "index", there)
    assert sorted(map(str, tokens.client_gone(gone))) == ["a", "b"]
    assert tokens.list_active_tokens() == ["c"]
    assert tokens.client_gone(gone) == []


def test_ten_thousand_calls_take_less_than_500_bytes_each_and_are_found_at_once(
    clock: FakeClock,
) -> None:
    client = Listener()
    tracemalloc.start()
    try:
        tokens = ProgressTokens(clock=clock)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(10_000):
            clock.advance(0.001)
            token = tokens.generate_token()
            tokens.track_tool_call(token, "index", client)
            if len(tokens) % 2:
                tokens.send_progress(token, ProgressUpdate(50.0))
                client.heard.clear()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tokens) == 10_000
    assert (after - before) / 10_000 < 500

    def look_up(tokens: ProgressTokens, token: str | int) -> float:
        best = float("inf")
        for _ in range(20):
            started = time.thread_time()
            for _ in range(50):
                tokens.touch(token)
            best = min(best, time.thread_time() - started)
        return best

    few = ProgressTokens(clock=clock)
    few.track_tool_call("t", "index", client)
    assert look_up(tokens, tokens.list_active_tokens()[5000]) < 10 * look_up(few, "t")
