"""Clients of AWS and of what speaks like it, by boto3; and what goes wrong, with what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, where this process runs"
_NOT_ALLOWED = "let these credentials do it, in IAM or in the policy of what it is done to"
_ADVICE = {
    "InvalidAccessKeyId": f"the access key is not known there; {_CREDENTIALS}",
    "InvalidClientTokenId": f"the access key is not known there; {_CREDENTIALS}",
    "UnrecognizedClientException": f"the access key is not known there; {_CREDENTIALS}",
    "SignatureDoesNotMatch": "the secret key is not the access key's; set AWS_SECRET_ACCESS_KEY anew",
    "InvalidSignatureException": "the secret key is not the access key's; set AWS_SECRET_ACCESS_KEY anew",
    "ExpiredToken": "the session is over; get new credentials",
    "ExpiredTokenException": "the session is over; get new credentials",
    "AccessDenied": _NOT_ALLOWED,
    "AccessDeniedException": _NOT_ALLOWED,
    "403": _NOT_ALLOWED,
}
_OTHERWISE = "try again shortly"


def make_client(service: str, endpoint: str, region: str, **config: Any) -> Any:
    """A client that waits for nobody for long and tries a few times. Raises what `told` turns into words."""
    import boto3
    from botocore.config import Config

    tries = {"mode": "standard", "total_max_attempts": 4}
    made = Config(connect_timeout=5, read_timeout=60, retries=tries, **config)
    session = boto3.session.Session()
    return session.client(service, endpoint_url=endpoint or None, region_name=region or None, config=made)


@contextlib.contextmanager
def told(as_error: Callable[[str], Exception], advice: Mapping[str, str]) -> Iterator[None]:
    """What boto3 raises in the block as an error of ours, made of the reason and what to do about it.

    `advice` says the latter by AWS's own code for what went wrong, where the common ones do not fit.
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
