"""Settings from arguments, the environment and a file."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from backburner.config import Queue, Settings
from backburner.errors import ConfigError
from backburner.times import duration_s


def load(arguments: dict[str, Any] | None = None, file: Path | None = None, **environment: str) -> Settings:
    return Settings.load("lab", arguments, environment, file)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "backburner.toml"
    path.write_text(
        'store = "sqlite:///file.db"\nttl_s = "1h"\nheartbeat_s = 3\n[queues.gpu_big]\nworkers = 4\n'
    )
    return path


def test_an_argument_beats_the_environment_which_beats_the_file(toml: Path) -> None:
    given = load({"ttl_s": "3d"}, toml, BACKBURNER_TTL_S="2h", BACKBURNER_STORE="sqlite:///environment.db")
    assert (given.ttl_s, given.store, given.heartbeat_s) == (3 * 86400, "sqlite:///environment.db", 3)
    assert load(None, toml, BACKBURNER_TTL_S="2h").ttl_s == 7200
    assert load(None, toml).ttl_s == 3600


def test_an_argument_that_is_none_says_nothing(toml: Path) -> None:
    assert load({"store": None}, toml).store == "sqlite:///file.db"


def test_the_environment_may_name_the_file(toml: Path) -> None:
    assert load(BACKBURNER_CONFIG=str(toml)).ttl_s == 3600


def test_without_a_store_each_app_has_a_file_of_its_own() -> None:
    assert load(XDG_STATE_HOME="/state").store == "sqlite:////state/backburner/lab.db"
    assert (
        Settings.load("a/../b", None, {"XDG_STATE_HOME": "/s"}).store == "sqlite:////s/backburner/a_.._b.db"
    )


def test_queues_are_put_over_the_default_ones(toml: Path) -> None:
    assert load(None, toml).queues["gpu_big"] == Queue(workers=4)
    assert load(None, toml).queues["cpu_heavy"] == Queue(workers=1)
    given = load({"queues": {"cpu_heavy": 3, "x": {"max_length": 5}}, "default_queue": "x"})
    assert (given.queues["cpu_heavy"], given.queues["x"]) == (Queue(3), Queue(max_length=5))
    assert load(BACKBURNER_QUEUES='{"y": {"workers": 0}}').queues["y"] == Queue(workers=0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5h", 5400), ("1h30m", 5400), ("250ms", 0.25), ("2w", 1_209_600), (7, 7), (0, 0)],
)
def test_a_time_is_a_number_or_a_text(text: str | float, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("value", ["soon", "-1", -1, "1x", "", "nan", float("inf"), True, None, "1h soon"])
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        duration_s(value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("colour", "red"),
        ("ttl_s", "soon"),
        ("max_input_bytes", "many"),
        ("max_input_bytes", -1),
        ("synchronous", "off"),
        ("default_queue", "nope"),
        ("queues", "not json"),
        ("queues", {"q": {"colour": 1}}),
        ("queues", {"q": {"workers": "two"}}),
        ("queues", {"q": {"workers": -1}}),
        ("queues", {"q": {"max_length": 0}}),
        ("queues", [1]),
        ("store", 7),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        load({setting: value})
    assert refused.value.code == "config_error"
    assert refused.value.details["setting"].startswith(setting)


def test_a_file_that_is_not_there_or_not_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load(file=tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("store = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(file=broken)


def test_settings_survive_the_way_to_another_process() -> None:
    given = load({"ttl_s": 5, "queues": {"q": {"workers": 9}}, "fair_share": "owner"})
    assert Settings.from_json(given.to_json()) == given


def test_every_setting_says_what_it_is_for() -> None:
    for entry in dataclasses.fields(Settings):
        assert entry.metadata["help"], entry.name
