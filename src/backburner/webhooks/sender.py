"""The sender: delivers what is due in a store's outbox. Many may be at it: each leases what it sends."""

from __future__ import annotations

import logging
import random
import time
from collections import defaultdict
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from ..config import WebhookSettings
from ..errors import WebhookRefused
from ..log_lines import about
from ..version import VERSION
from .hooks import check_endpoint
from .outbox import Delivery, Outbox
from .signature import signed_headers

if TYPE_CHECKING:
    from .post import Answer

log = logging.getLogger("backburner.webhooks")

#: So many endpoints are told at the same time; the messages for one are sent one after another.
_AT_ONCE = 8
_LONGEST_PAUSE_S = 3600.0
#: How long an endpoint that does not answer is left alone by all its messages.
_REST_S = 30.0
#: A lease ends so long after the answer is due at the latest.
_MARGIN_S = 10.0
#: These may go well the next time: a time-out, too many requests, and all trouble of the endpoint's own.
_TRY_AGAIN = frozenset({408, 425, 429})


class WebhookSender:
    """Delivers by the settings in force: also whom callers may have told is looked up again with each try."""

    def __init__(self, outbox: Outbox, settings: WebhookSettings) -> None:
        self._outbox = outbox
        self._settings = settings

    def send_due(self) -> None:
        """One round: try once all that is due. Returns when each endpoint has answered, or has had its time.

        Raises StoreError.
        """
        due = self._outbox.due_deliveries()
        if not due:
            return
        from concurrent.futures import ThreadPoolExecutor

        by_endpoint = defaultdict(list)
        for delivery in due:
            by_endpoint[delivery.endpoint].append(delivery)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="backburner-webhook") as pool:
            list(pool.map(self._send_all, by_endpoint.values()))

    def _send_all(self, deliveries: list[Delivery]) -> None:
        """Send to one endpoint until it does not answer: then none of the others would arrive either."""
        for delivery in deliveries:
            leased = self._outbox.lease_delivery(delivery, self._settings.timeout_s + _MARGIN_S)
            if leased and not self._send(delivery):
                self._outbox.put_off_deliveries(delivery.endpoint, min(_REST_S, 6 * self._settings.retry_s))
                return

    def _send(self, delivery: Delivery) -> bool:
        """Try once, and note what became of it; whether there was an answer, or will never be one."""
        from .post import NoAnswer

        try:
            answer = self._post(delivery)
        except WebhookRefused as error:
            self._outbox.not_delivered(delivery, error.details["reason"], None)
            return True
        except NoAnswer as error:
            self._try_again(delivery, str(error))
            return False
        if 200 <= answer.status < 300:
            self._outbox.delivered(delivery)
        elif answer.status >= 500 or answer.status in _TRY_AGAIN:
            self._try_again(delivery, f"it answered {answer.status}", _asked_pause_s(answer.retry_after))
        else:
            redirect = "; redirects are not followed" if 300 <= answer.status < 400 else ""
            self._outbox.not_delivered(delivery, f"it answered {answer.status}{redirect}", None)
        return True

    def _post(self, delivery: Delivery) -> Answer:
        from .post import post

        settings, body = self._settings, delivery.body.encode()
        check_endpoint(delivery.url, settings)
        headers = {
            "content-type": "application/json",
            "user-agent": f"backburner/{VERSION}",
            **signed_headers(settings.keys, delivery.delivery_id, int(time.time()), body),
        }
        public = delivery.url != settings.url and not settings.allow_private
        return post(delivery.url, body, headers, timeout_s=settings.timeout_s, public=public)

    def _try_again(self, delivery: Delivery, error: str, asked_s: float = 0.0) -> None:
        tried, settings = delivery.attempts + 1, self._settings
        pause_s = min(_LONGEST_PAUSE_S, settings.retry_s * 3 ** min(tried - 1, 20))
        pause_s = max(pause_s * random.uniform(0.5, 1.0), min(asked_s, _LONGEST_PAUSE_S))
        age_s = time.time() - delivery.created_at / 1000
        over = tried >= settings.max_attempts or age_s + pause_s > settings.max_age_s
        if over:
            log.warning(
                "The webhook %s to %s is given up: %s",
                delivery.delivery_id,
                delivery.endpoint,
                error,
                extra=about(delivery.task_id),
            )
        self._outbox.not_delivered(delivery, error, None if over else pause_s)


def _asked_pause_s(retry_after: str | None) -> float:
    """How long an endpoint wants to be left alone: it says so in seconds, or by a date."""
    if retry_after is None:
        return 0.0
    try:
        return float(int(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
