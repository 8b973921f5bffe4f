"""`dashboard`: a link that opens the dashboard of a server."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import ConfigError
from .output import print_json
from .place import Place
from .verb import verb


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        panel="Servers",
        without=("owner", "all_owners"),
        examples=[
            "backburner dashboard http://127.0.0.1:8765 -t lab.py",
            "backburner dashboard http://127.0.0.1:8765 -t lab.py --open",
        ],
    )(dashboard)


def dashboard(
    place: Place,
    address: Annotated[str, typer.Argument(metavar="URL", help="Where the server is", show_default=False)],
    in_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser")] = False,
) -> None:
    """Print a link that opens the dashboard of a server that asks for no tokens: once, and within an hour."""
    from ..mcp.serving.token_file import TokenFile
    from ..web.dashboard.sessions import one_time_link

    if not address.startswith(("http://", "https://")):
        raise ConfigError(setting="URL", reason=f"{address!r} is no address; write http://127.0.0.1:8765")
    auth = place.settings.http.auth
    if auth.jwks or auth.jwt_key or auth.tokens or TokenFile.of(place.settings, place.data_dir).path.exists():
        link = f"{address.rstrip('/')}/"  # there one signs in with a token
    else:
        link = one_time_link(place.store, address)
    if place.as_json:
        print_json({"url": link})
    else:
        print(link)
    if in_browser:
        typer.launch(link)
