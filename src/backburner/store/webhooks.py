"""Webhooks: endpoints, messages, signatures, and the outbox of deliveries in the store."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol
from urllib.parse import urlsplit

from ..core import json_text
from ..core.lifecycle import TERMINAL, State
from ..core.task import TaskError
from ..core.times import iso
from ..errors import WebhookRefused
from ..settings import WebhookSettings
from ..settings.groups import unfit_url
from .sql import rows
from .sql.transaction import Row, SqlBase, Transaction, read, write, write_relaxed

_PORTS = {"https": 443, "http": 80}
_LONGEST_URL = 2048
#: Longer error messages are cut; the task has the whole message.
_LONGEST_ERROR = 1000
#: The longest delay of a delivery: see service/webhooks.py.
_LONGEST_DELAY_MS = 2 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message for one endpoint. `delivery_id` is the `webhook-id` of all its tries.

    It is due at `due_at`, or has failed for good if that is None.
    """

    delivery_id: str
    task_id: str
    owner: str
    url: str
    endpoint: str
    body: str
    created_at: int
    due_at: int | None
    attempts: int
    last_error: str


class Outbox(Protocol):
    """Deliveries, inserted by the end of a task."""

    def due_deliveries(self, limit: int = 32) -> list[Delivery]:
        """Return due deliveries, the longest due first."""
        ...

    def lease_delivery(self, delivery: Delivery, lease_s: float) -> bool:
        """Claim the next try of a due delivery for `lease_s`. Return False if another process has it.

        The lease has relaxed durability, so a power cut may cause one more try.
        """
        ...

    def delivered(self, delivery: Delivery) -> None:
        """Delete a delivery, and record it in the task's audit trail."""
        ...

    def not_delivered(self, delivery: Delivery, error: str, again_in_s: float | None) -> None:
        """Schedule the next try, or with None give up and record that in the task's audit trail."""
        ...

    def put_off_deliveries(self, endpoint: str, for_s: float) -> None:
        """Delay all deliveries to an endpoint that does not respond."""
        ...

    def deliveries(self, owner: str | None = None, limit: int = 500) -> list[Delivery]:
        """Return pending and failed deliveries, oldest first."""
        ...

    def retry_delivery(self, delivery_id: str, owner: str | None = None) -> bool:
        """Make a delivery due now and reset its tries. Return False if it does not exist."""
        ...

    def has_deliveries(self) -> bool:
        """Return whether a delivery is pending."""
        ...


class SqlWebhooks(SqlBase):
    @read
    def due_deliveries(self, tx: Transaction, limit: int = 32) -> list[Delivery]:
        found = tx.all("due_deliveries", now=tx.now, too_late=tx.now + _LONGEST_DELAY_MS, limit=limit)
        return [rows.record(Delivery, row) for row in found]

    @write_relaxed
    def lease_delivery(self, tx: Transaction, delivery: Delivery, lease_s: float) -> bool:
        until = tx.now + int(lease_s * 1000)
        found = {"delivery_id": delivery.delivery_id, "due_at": delivery.due_at}
        return tx.one("lease_delivery", **found, until=until) is not None

    @write
    def delivered(self, tx: Transaction, delivery: Delivery) -> None:
        if tx.one("delete_delivery", delivery_id=delivery.delivery_id) is not None:
            _note(tx, delivery, "told")

    @write
    def not_delivered(
        self, tx: Transaction, delivery: Delivery, error: str, again_in_s: float | None
    ) -> None:
        due_at = None if again_in_s is None else tx.now + int(again_in_s * 1000)
        found = tx.one("fail_delivery", delivery_id=delivery.delivery_id, due_at=due_at, error=error)
        if found is not None and due_at is None:
            _note(tx, delivery, "not_told", error=error)

    @write
    def put_off_deliveries(self, tx: Transaction, endpoint: str, for_s: float) -> None:
        tx.run("postpone_deliveries", endpoint=endpoint, until=tx.now + int(for_s * 1000))

    @read
    def deliveries(self, tx: Transaction, owner: str | None = None, limit: int = 500) -> list[Delivery]:
        return [rows.record(Delivery, row) for row in tx.all("deliveries", owner=owner, limit=limit)]

    @write
    def retry_delivery(self, tx: Transaction, delivery_id: str, owner: str | None = None) -> bool:
        return tx.one("retry_delivery", delivery_id=delivery_id, owner=owner, now=tx.now) is not None

    @read
    def has_deliveries(self, tx: Transaction) -> bool:
        return tx.one("pending_delivery") is not None


def _note(tx: Transaction, delivery: Delivery, signal: str, **detail: Any) -> None:
    """Record a delivery without the URL's path, which may be a secret."""
    about = {"endpoint": delivery.endpoint, "webhook_id": delivery.delivery_id}
    tx.note(delivery.task_id, signal, **about, **detail)


def enqueue(
    tx: Transaction,
    row: Row,
    task_id: str,
    state: State,
    error: TaskError | None = None,
    result_json: str | None = None,
) -> None:
    """Insert the deliveries for the end of a task, a `lock_task` row. Call `flush` after it."""
    if row["webhooks_json"] is None:
        return
    data: dict[str, Any] = {
        "task_id": task_id,
        "tool": row["tool_name"],
        "owner": row["owner"],
        "state": state,
        "attempt": row["attempt"],
        "submitted_at": iso(row["submitted_at"]),
        "started_at": iso(row["started_at"]),
        "ended_at": iso(tx.now),
    }
    if error is not None:
        data["error"] = {"type": error.type, "message": error.message[:_LONGEST_ERROR]}
    if result_json is not None:
        data["result_uri"] = f"task://{task_id}/result"
    for hook in _read_hooks(row["webhooks_json"]):
        if state not in hook.states:
            continue
        message = {"type": f"task.{state}", "timestamp": iso(tx.now), "data": data}
        if result_json is not None and len(result_json.encode()) <= hook.result_bytes:
            message["data"] = {**data, "result": json_text.decode(result_json)}
        tx.defer(
            "insert_delivery",
            delivery_id=f"msg_{secrets.token_hex(16)}",
            task_id=task_id,
            owner=row["owner"],
            url=hook.url,
            endpoint=endpoint_of(hook.url),
            body=json_text.encode(message),
            now=tx.now,
        )


# -- endpoints -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hook:
    """An endpoint of a task, the states it is notified of, and the largest result that it receives."""

    url: str
    states: tuple[str, ...]
    result_bytes: int = 0


def kept_hooks(settings: WebhookSettings, asked: Any = None) -> str | None:
    """Return the endpoints of a new task as JSON; None if there are none.

    `asked` is the caller's object with a `url` and optional `states`. Raises WebhookRefused.
    """
    hooks = [Hook(settings.url, settings.states, settings.result_bytes)] if settings.url else []
    if asked is not None:
        hooks.append(_requested_hook(settings, asked))
    return json_text.encode([asdict(hook) for hook in hooks]) if hooks else None


def _read_hooks(text: str) -> list[Hook]:
    return [Hook(**values) for values in json_text.decode(text)]


def check_endpoint(url: str, settings: WebhookSettings) -> None:
    """Raise WebhookRefused unless the endpoint is the app's own or an allowed one."""
    if url == settings.url:
        return
    if not settings.allowed_hosts:
        reason = "this server allows no webhook of callers; its operator can set webhook.allowed_hosts"
        raise WebhookRefused(reason=reason)
    if reason := unfit_url(url):
        raise WebhookRefused(reason=reason)
    if urlsplit(url).scheme != "https" and not settings.allow_http:
        raise WebhookRefused(reason="its url must begin with https://")
    host = endpoint_of(url).partition("://")[2]
    if not any(fnmatchcase(host, allowed) for allowed in settings.allowed_hosts):
        reason = f"{host} is not in webhook.allowed_hosts: {', '.join(settings.allowed_hosts)}"
        raise WebhookRefused(reason=reason)


def endpoint_of(url: str) -> str:
    """Return the URL without its path, which is often a secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    named = f"[{host}]" if ":" in host else host
    port = parts.port if parts.port != _PORTS[parts.scheme] else None
    return f"{parts.scheme}://{named}" + ("" if port is None else f":{port}")


def _requested_hook(settings: WebhookSettings, asked: Any) -> Hook:
    if (
        not isinstance(asked, Mapping)
        or not isinstance(asked.get("url"), str)
        or set(asked) - {"url", "states"}
    ):
        raise WebhookRefused(reason='it must be an object such as {"url": "https://lab.example/hook"}')
    url, states = asked["url"], asked.get("states", sorted(TERMINAL))
    if len(url) > _LONGEST_URL:
        raise WebhookRefused(reason=f"its url is longer than {_LONGEST_URL} characters")
    check_endpoint(url, settings)
    if not isinstance(states, list | tuple) or not states or not all(state in TERMINAL for state in states):
        raise WebhookRefused(reason=f"its states must be a list of some of {', '.join(sorted(TERMINAL))}")
    return Hook(url, tuple(states), settings.result_bytes)


def signed_headers(keys: Iterable[bytes], message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message: its id, its time, and a signature for each key."""
    content = f"{message_id}.{seconds}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
