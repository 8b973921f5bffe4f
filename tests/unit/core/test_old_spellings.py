"""Settings as they were spelled before they had groups, which works for one release more."""

import warnings
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner
from backburner.config import Settings, every_setting, variable
from backburner.config.old_spellings import MOVED
from backburner.errors import ConfigError

TEXTS = {
    "synchronous": "normal",
    "announce_jobs": "all",
    "task_tools": "off",
    "allow_anonymous": "on",
    "allowed_hosts": "a.example, b.example",
    "client_patience": "cursor*=50s, my-host@2.*=forever",
    "state_dir": "/state",
    "public_url": "https://lab.example",
}
VALUES = {
    "sqlite.synchronous": "normal",
    "mcp.announce_jobs": "all",
    "mcp.task_tools": False,
    "http.allow_anonymous": True,
    "http.allowed_hosts": ("a.example", "b.example"),
    "mcp.client_patience": {"cursor*": 50, "my-host@2.*": "forever"},
    "task_id.state_dir": "/state",
    "http.public_url": "https://lab.example",
}


def expected(path: str) -> Any:
    default: Any = reduce(getattr, path.split("."), Settings())
    return VALUES.get(path, "7" if isinstance(default, str) else 7)


def test_every_setting_that_moved_is_a_setting() -> None:
    paths = {path for path, _ in every_setting()}
    assert set(MOVED.values()) <= {path for path in paths if "." in path}


@pytest.mark.parametrize(("old", "path"), MOVED.items())
@pytest.mark.filterwarnings("ignore:.* is now written:FutureWarning")
def test_a_flat_name_still_works_everywhere_and_says_the_new_one(old: str, path: str, tmp_path: Path) -> None:
    text = TEXTS.get(old, "7")
    file = tmp_path / "backburner.toml"
    file.write_text(f'{old} = "{text}"\n')
    name = path.rpartition(".")[2]
    with pytest.warns(FutureWarning, match=rf"^{old}=… is now \w+=\{{.*{name}"):
        argument = Settings.load("lab", {old: text}, {})
    with pytest.warns(FutureWarning, match=f"^{variable(old)} is now {variable(path)};"):
        in_environment = Settings.load("lab", None, {variable(old): text})
    with pytest.warns(FutureWarning, match=rf"^{old} in backburner.toml is now {name} in the table \["):
        in_file = Settings.load("lab", None, {}, file)
    for settings in (argument, in_environment, in_file):
        assert reduce(getattr, path.split("."), settings) == expected(path)


@pytest.mark.parametrize(
    ("given", "new"),
    [
        ({"mcp": {"task_tools": "off"}}, "mcp.task_tools is now written false"),
        ({"http": {"allow_anonymous": "on"}}, "http.allow_anonymous is now written true"),
        ({"http": {"allowed_hosts": "a, b"}}, r'http.allowed_hosts is now written \["a", "b"\]'),
        ({"mcp": {"client_patience": "a=5s"}}, r'mcp.client_patience is now written {"a": "5s"}'),
    ],
)
def test_text_that_stood_for_something_else_says_what_to_write(given: dict[str, Any], new: str) -> None:
    with pytest.warns(FutureWarning, match=new):
        Settings.load("lab", given, {})


@pytest.mark.parametrize("text", ["cursor", "=5s", "cursor=soon"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_old_text_that_cannot_be_read_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mcp\.client_patience"):
        Settings.load("lab", {"client_patience": text}, {})


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_new_spelling_counts_beside_the_old_one_and_the_nearer_place_before_both() -> None:
    both = {"cancel_grace_s": 1, "supervisor": {"cancel_grace_s": 2}}
    assert Settings.load("lab", both, {}).supervisor.cancel_grace_s == 2
    variables = {"BACKBURNER_CANCEL_GRACE_S": "1", "BACKBURNER_SUPERVISOR__CANCEL_GRACE_S": "2"}
    assert Settings.load("lab", None, variables).supervisor.cancel_grace_s == 2
    assert Settings.load("lab", {"cancel_grace_s": 3}, variables).supervisor.cancel_grace_s == 3


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_old_names_share_a_group_with_new_ones() -> None:
    given = {"auth_issuer": "us", "public_url": "http://x", "http": {"auth": {"audience": "them"}}}
    http = Settings.load("lab", given, {}).http
    assert (http.auth.issuer, http.auth.audience, http.public_url) == ("us", "them", "http://x")


def test_the_warning_points_at_the_line_that_gave_the_argument_and_comes_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            Backburner("lab", store="sqlite://", idle_exit_s=1)
    assert [(one.filename, one.category) for one in caught] == [(__file__, FutureWarning)]
