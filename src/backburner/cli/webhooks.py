"""`webhooks`: what endpoints are still to be told, and what was given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ..times import from_iso
from .output import cell, moment, print_json, say, show, table
from .place import Place
from .verb import verb

if TYPE_CHECKING:
    from ..webhooks.outbox import Delivery

#: Of a delivery that nobody has tried for so long, nobody is there to send it.
_LATE_MS = 60_000


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, rich_markup_mode="rich", help="See whom a task's end could not be told to."
    )
    examples = ["backburner webhooks list -t lab.py", "backburner webhooks list --all-owners --json"]
    verb(group, "list", examples=examples, remote=True)(list_deliveries)
    verb(
        group,
        "retry",
        examples=["backburner webhooks retry -t lab.py", "backburner webhooks retry msg_4f1c… -t lab.py"],
        remote=True,
    )(retry)
    app.add_typer(group, name="webhooks", rich_help_panel="Looking after a store")


def list_deliveries(place: Place) -> None:
    """List what endpoints were not told yet, and what was given up; what arrived is in the task's trail."""
    found = place.operator.webhooks(place.owner)
    if place.as_json:
        print_json({"deliveries": found})
        return
    if not found:
        say("Every endpoint was told of what it is to know.")
        return
    rows = [
        [
            one["webhook_id"],
            one["task_id"],
            one["endpoint"],
            one["attempts"],
            cell("given up", "red") if one["given_up"] else moment(from_iso(one["next_at"])),
            one["last_error"],
        ]
        for one in found
    ]
    show(table(["WEBHOOK", "TASK", "ENDPOINT", "TRIES", "NEXT", "ERROR"], rows, whole=("WEBHOOK",)))


def retry(
    place: Place,
    webhooks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WEBHOOK…]", help="Which (default: all that were given up)", show_default=False
        ),
    ] = None,
) -> None:
    """Have messages sent again, as if they had never been tried."""
    known = place.operator.webhooks(place.owner)
    wanted = webhooks or [one["webhook_id"] for one in known if one["given_up"]]
    again = [one for one in wanted if place.operator.retry_webhook(one, place.owner)]
    if place.as_json:
        print_json({"retried": again})
        return
    for unknown in sorted(set(wanted) - set(again)):
        say(f"There is no message {unknown} to send.")
    say(f"{len(again)} to be sent again, as soon as a supervisor is at work.")


@dataclass(frozen=True, slots=True)
class TroubledEndpoint:
    """An endpoint that has failed: for how many messages, and how the last time."""

    endpoint: str
    failed: int
    error: str


def troubled_endpoints(place: Place) -> list[TroubledEndpoint]:
    """Those of messages that were given up, or that have failed more than once."""
    failed: dict[str, list[Delivery]] = {}
    for one in place.store.deliveries():
        if one.last_error and (one.due_at is None or one.attempts > 1):
            failed.setdefault(one.endpoint, []).append(one)
    return [TroubledEndpoint(name, len(those), those[-1].last_error) for name, those in failed.items()]


def is_late(delivery: Delivery, now_ms: int) -> bool:
    """Whether a message is overdue that a sender would have tried long ago."""
    return delivery.due_at is not None and delivery.due_at < now_ms - _LATE_MS
