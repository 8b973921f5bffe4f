"""A tool that asks in the middle of its work. While it waits, the task is `input_required`."""

from typing import Any

from backburner import Backburner, TaskContext

bb = Backburner("travel")

SEATS = {
    "type": "object",
    "properties": {"seat": {"type": "string", "enum": ["window", "aisle"], "title": "Your seat"}},
    "required": ["seat"],
}


@bb.tool
def book_train(destination: str, *, ctx: TaskContext) -> dict[str, Any]:
    """Book a train. It asks for the seat, and once more before it pays."""
    ctx.progress(phase="search", message=f"Looking for trains to {destination}")
    seat = ctx.ask(f"Which seat to {destination}?", SEATS)
    if not seat.accepted:
        return {"booked": False, "reason": f"no seat was chosen ({seat.action})"}
    ctx.progress(phase="payment", message="Waiting for your word")
    if not ctx.ask(f"Pay 42 € for the {seat.content['seat']} seat?").accepted:
        return {"booked": False, "reason": "it was not to be paid"}
    return {"booked": True, "destination": destination, **seat.content}


if __name__ == "__main__":
    bb.run()
