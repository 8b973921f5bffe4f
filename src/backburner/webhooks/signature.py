"""The signature of Standard Webhooks, version 1: HMAC-SHA256 over the id, the time and the body."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable


def signed_headers(keys: Iterable[bytes], message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers that say which message this is, when it was sent, and by whom: once for each key."""
    content = f"{message_id}.{seconds}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
