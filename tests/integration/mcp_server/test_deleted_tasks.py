"""A client that polls or hears of a task while an operator deletes it learns of an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect, make_app
from tests.services import until

NEWS = {"2025": "notifications/tasks/status", "2026": "notifications/tasks"}


def heard(said: dict[str, Any]) -> tuple[str, str]:
    return said["taskId"], said["status"]


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_task_that_is_deleted_while_it_is_polled_is_shown_as_cancelled(
    deployment: Deployment, era: str
) -> None:
    """Some clients poll an unknown task for ever."""
    with deployment.app(make_app) as app:
        for queue in app.settings.queues:
            app.operator.pause(queue)
        async with connect(deployment.stdio(), era) as peer:
            polled, unseen = await peer.start("slow", {"n": 1}), await peer.start("slow", {"n": 2})
            assert (await peer.request("tasks/get", {"taskId": polled}))["status"] == "working"
            if era == "2026":
                wanted = {"notifications": {"taskIds": [polled]}}
                listening = asyncio.ensure_future(peer.request("subscriptions/listen", wanted))
            await until(lambda: peer.wire.of(NEWS[era]))
            for task_id in (polled, unseen):
                app.service.cancel(task_id)
                app.service.delete(task_id)

            await until(lambda: (polled, "cancelled") in [heard(said) for said in peer.wire.of(NEWS[era])])
            for _ in range(2):
                shown = await peer.request("tasks/get", {"taskId": polled})
                assert (shown["status"], shown["statusMessage"]) == ("cancelled", "The task was deleted.")
            with pytest.raises(MCPError) as unknown:
                await peer.request("tasks/get", {"taskId": unseen})
            assert unknown.value.code == -32602
            if era == "2026":
                listening.cancel()
