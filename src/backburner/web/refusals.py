"""What only a request over HTTP can get wrong. As in errors.py, the docstring is the message."""

from __future__ import annotations

from ..errors import BackburnerError


class TokenRequired(BackburnerError):
    """This server wants a bearer token that it knows: `Authorization: Bearer …`. Its operator makes one with `backburner token new`."""  # noqa: E501

    code = "token_required"


class NotPermitted(BackburnerError):
    """This token has the role {role}, which may not {what}."""

    code = "not_permitted"


class CrossSite(BackburnerError):
    """A page of another site cannot change anything here."""

    code = "cross_site"


class NotJson(BackburnerError):
    """What changes something is sent with `Content-Type: application/json`."""

    code = "not_json"


class NoSuchPath(BackburnerError):
    """There is nothing at this address. /api/v1/openapi.json says what there is."""

    code = "no_such_path"


class NoSuchMethod(BackburnerError):
    """This address does not take {method}."""

    code = "no_such_method"
