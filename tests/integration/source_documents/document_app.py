"""The tools that the source documents name, for the tests that replay their examples."""

from pathlib import Path
from typing import Any, Literal

from mcp.server.mcpserver import MCPServer

from backburner import Backburner, TaskContext, ToolSpec

server = MCPServer("documents")


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers: a fast tool."""
    return a + b


bb = Backburner.attach(server)


def wait_for(flag: str, ctx: TaskContext) -> None:
    """Go on when the test says so."""
    while flag and not Path(flag).exists():
        if ctx.wait_cancelled(0.01):
            ctx.raise_if_cancelled()


@bb.tool(answer="handle", estimate=45.0, retries=0)
def wksm_monitor_sync(path: str, recursive: bool = False, *, ctx: TaskContext) -> dict[str, Any]:
    """Sync files to monitor database"""
    for done in (150, 300):
        ctx.progress(done, 500, message=f"Processing {done} of 500 files...")
        wait_for(f"{path}/{done}", ctx)
    if recursive is False:
        raise PermissionError("Failed to sync: Permission denied")
    return {
        "success": True,
        "data": {
            "files_processed": 500,
            "files_skipped": 10,
            "files_updated": 490,
            "duration_seconds": 42.3,
        },
        "messages": [{"type": "success", "text": "Sync completed successfully"}],
    }


@bb.tool(
    answer="hold", suggest={"title": lambda typed, arguments, context: [context.get("author", "nobody")]}
)
def analyze_document(
    format: Literal["pdf", "docx", "txt"], title: str = "", flag: str = "", *, ctx: TaskContext
) -> str:
    """Analyze a document"""
    ctx.progress(
        percent=50.0, message="Processing features...", current_stage="extraction", models_processed=3
    )
    wait_for(flag, ctx)
    return "Result data"


@bb.tool(requires_task_id=True)
def codex_app_window_run(prompt: str, flag: str = "", *, ctx: TaskContext) -> str:
    """Run a prompt in a window"""
    ctx.progress(percent=10, message="started")
    wait_for(flag, ctx)
    return f"## Done\n\n{prompt} 交互待办"


@bb.tool(estimate=None)
def analyse(flag: str = "", *, ctx: TaskContext) -> str:
    """Take a while"""
    wait_for(flag, ctx)
    return "analysed"


@bb.tool(estimate=20.0, title="Index")
def wksm_vault_index(path: str, *, ctx: TaskContext) -> dict[str, Any]:
    """Index entire vault"""
    wait_for(f"{path}/indexed", ctx)
    return {"notes": 3}


@bb.tool(answer="handle", estimate=lambda inputs: inputs["seconds"])
def wksm_transform_batch(seconds: float) -> str:
    """Transform multiple files"""
    return "transformed"


@bb.tool()
def rename_vault(*, ctx: TaskContext) -> str:
    """Ask for the name, and answer with it"""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = ctx.ask("Which name?", schema)
    return str(answer.content["name"]) if answer.accepted else answer.action


bb.add_tool(
    ToolSpec(
        "broken_form",
        lambda inputs, ctx: "never called",
        input_schema={
            "type": "object",
            "properties": {"colour": {"enum": "red"}, "size": {"enum": ["small", "large"]}},
        },
    )
)


@bb.tool(answer="handle")
def chatty(updates: int, flag: str = "", *, ctx: TaskContext) -> str:
    """Say much"""
    for number in range(updates):
        ctx.progress(number, updates, message="x" * 1000)
    wait_for(flag, ctx)
    return "said"
