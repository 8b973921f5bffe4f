"""The documents' own surfaces through the SDK's client, in both protocol generations."""

import pytest

from backburner.tools.targets import load, parse
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.integration.source_documents.pipe import serving

APP = """
from backburner import Backburner, TaskContext

bb = Backburner("eras")

async def colours(typed, arguments, context):
    return ["red", "green"]

@bb.tool(answer="handle", suggest={"colour": colours})
def paint(colour: str, secret: str = "", *, ctx: TaskContext) -> str:
    \"\"\"Paint it.\"\"\"
    return f"painted {colour}"
"""


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_jobs_and_completions(deployment: Deployment, era: str) -> None:
    path = deployment.folder / "eras_app.py"  # where a runner finds it too
    path.write_text(APP)
    completing = {"name": "paint", "partial_argument": {"name": "colour", "value": ""}}
    with deployment.app(lambda: load(parse(str(path)))) as bb:
        async with connect(bb.mcp_server(), era, tasks=False) as peer:
            (tool,) = [t for t in (await peer.request("tools/list"))["tools"] if t["name"] == "paint"]
            assert tool["async"] is True
            found = await peer.request("completion/complete", completing)
            assert found["completion"] == {"values": ["red", "green"], "total": 2, "hasMore": False}

            handle = await peer.call("paint", {"colour": "teal", "secret": "s"})
            job_id = handle["data"]["job_id"]
            assert handle["_meta"]["progressToken"]
            while not (await peer.tool("wait_for_task", task_id=job_id))["finished"]:
                pass
            polled = await peer.request("tools/poll_result", {"job_id": job_id})
            assert polled["data"]["result"]["data"] == {"result": "painted teal"}
            again = await peer.request("completion/complete", completing)
            assert again["completion"]["values"][0] == "teal"
            if era == "2026":
                assert polled["resultType"] == found["resultType"] == "complete"


def test_a_job_is_there_for_the_next_connection(deployment: Deployment) -> None:
    with serving(deployment) as first:
        first.initialize()
        handle = first.request("tools/call", name="chatty", arguments={"updates": 5000})
        first.kill()
    with serving(deployment) as second:
        second.initialize()
        job_id = handle["data"]["job_id"]
        second.request("tools/call", name="wait_for_task", arguments={"task_id": job_id})
        polled = second.request("tools/poll_result", job_id=job_id)
        assert polled["data"]["status"] == "complete"
        assert polled["data"]["result"]["data"] == {"result": "said"}
