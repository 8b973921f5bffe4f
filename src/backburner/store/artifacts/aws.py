"""boto3 clients of AWS and compatible services, and advice for their errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, where this process runs"
_NOT_ALLOWED = "allow these credentials to do it, in IAM or in the policy of the resource"
_ADVICE = {
    "InvalidAccessKeyId": f"the service does not know the access key; {_CREDENTIALS}",
    "InvalidClientTokenId": f"the service does not know the access key; {_CREDENTIALS}",
    "UnrecognizedClientException": f"the service does not know the access key; {_CREDENTIALS}",
    "SignatureDoesNotMatch": "the secret key is wrong for this access key; set AWS_SECRET_ACCESS_KEY",
    "InvalidSignatureException": "the secret key is wrong for this access key; set AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the session has expired; get new credentials",
    "ExpiredTokenException": "the session has expired; get new credentials",
    "AccessDenied": _NOT_ALLOWED,
    "AccessDeniedException": _NOT_ALLOWED,
    "403": _NOT_ALLOWED,
}
_OTHERWISE = "try again shortly"


def make_client(service: str, endpoint: str = "", **config: Any) -> Any:
    """Make a client with timeouts and retries. Raises errors that `told` translates."""
    import boto3
    from botocore.config import Config

    tries = {"mode": "standard", "total_max_attempts": 4}
    made = Config(connect_timeout=5, read_timeout=60, retries=tries, **config)
    session = boto3.session.Session()
    return session.client(service, endpoint_url=endpoint or None, config=made)


@contextlib.contextmanager
def told(as_error: Callable[[str], Exception], advice: Mapping[str, str]) -> Iterator[None]:
    """Raise boto3's errors as errors of ours, with the reason and advice.

    `advice` maps AWS error codes to advice that replaces the common one.
    """
    from botocore import exceptions
    from urllib3.exceptions import HTTPError

    try:
        yield
    except exceptions.ClientError as error:
        said = error.response.get("Error", {})
        code = str(said.get("Code"))
        what_to_do = advice.get(code) or _ADVICE.get(code) or _OTHERWISE
        raise as_error(f"{_sentence(said.get('Message')) or code} ({code}); {what_to_do}") from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise as_error(f"{_sentence(error)}; {_CREDENTIALS}") from error
    except (exceptions.HTTPClientError, exceptions.ConnectionError, HTTPError) as error:
        raise as_error(f"it cannot be reached now ({_sentence(error)}); {_OTHERWISE}") from error
    except (exceptions.BotoCoreError, ValueError) as error:
        raise as_error(_sentence(error)) from error


def _sentence(text: object) -> str:
    return str(text or "").strip().rstrip(".")
