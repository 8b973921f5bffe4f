"""Settings from arguments, the environment and a file."""

import dataclasses
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from backburner.core.times import duration_s
from backburner.errors import ConfigError
from backburner.settings import (
    AuthSettings,
    HttpSettings,
    McpSettings,
    Queue,
    Settings,
    SupervisorSettings,
    every_setting,
    variable,
)
from backburner.settings.engines import SLURM_TABLES
from backburner.settings.reader import as_variables


def load(arguments: dict[str, Any] | None = None, file: Path | None = None, **environment: str) -> Settings:
    return Settings.load("lab", arguments, environment, file)


def load_from(environment: dict[str, str]) -> Settings:
    return Settings.load("lab", None, environment)


def value_of(settings: Settings, path: str) -> Any:
    return reduce(getattr, path.split("."), settings)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "backburner.toml"
    path.write_text("""
        store = "sqlite:///file.db"

        [retention]
        ttl_s = "1h"

        [supervisor]
        heartbeat_s = 3

        [mcp]
        task_tools = false
        client_patience = { "cursor*" = "50s", other = 7 }

        [http]
        allowed_hosts = ["lab.example", "lab.test"]
        auth.issuer = "us"

        [queues.gpu_big]
        workers = 4
        """)
    return path


# -- where a setting is taken from -----------------------------------------------------------------


def test_an_argument_beats_the_environment_which_beats_the_file(toml: Path) -> None:
    environment = {"BACKBURNER_RETENTION__TTL_S": "2h", "BACKBURNER_STORE": "sqlite:///environment.db"}
    given = load({"retention": {"ttl_s": "3d"}}, toml, **environment)
    assert (given.retention.ttl_s, given.store) == (3 * 86400, "sqlite:///environment.db")
    assert load(None, toml, **environment).retention.ttl_s == 7200
    assert load(None, toml).retention.ttl_s == 3600


def test_a_group_is_put_together_from_all_places(toml: Path) -> None:
    given = load({"supervisor": {"idle_exit_s": 1}}, toml, BACKBURNER_SUPERVISOR__CANCEL_GRACE_S="2")
    assert given.supervisor == SupervisorSettings(heartbeat_s=3, idle_exit_s=1, cancel_grace_s=2)


def test_a_group_that_is_given_as_a_record_is_taken_whole(toml: Path) -> None:
    given = load({"http": HttpSettings(auth=AuthSettings(tokens="t"))}, toml)
    assert given.http == HttpSettings(auth=AuthSettings(tokens="t"))


def test_an_argument_that_is_none_says_nothing(toml: Path) -> None:
    given = load({"store": None, "retention": {"ttl_s": None}}, toml)
    assert (given.store, given.retention.ttl_s) == (f"sqlite:///{toml.parent}/file.db", 3600)


def test_the_environment_may_name_the_file(toml: Path) -> None:
    assert load(BACKBURNER_CONFIG=str(toml)).retention.ttl_s == 3600


def test_every_setting_has_a_variable() -> None:
    texts = {"queues": '{"cpu_standard": 3}', "mcp.client_patience": '{"a": "5s"}'}
    texts |= {"http.allowed_hosts": '["a"]', "mcp.task_tools": "false", "http.allow_anonymous": "true"}
    texts |= {"sqlite.synchronous": "normal", "default_queue": "gpu_small"}
    texts |= {"log.format": "json", "log.level": "debug"}
    texts |= {"async_queue": "io", "engine": "celery", "http.worker_door": "true"}
    texts |= {"http.dashboard": "false"}
    texts |= {"task_id.state_roots": '["/srv"]', "http.public_url": "https://lab.example"}
    texts |= {
        "supervisor.lease_grace_s": "40",
        "supervisor.environment": "own",
    }
    texts |= {"mcp.kept_headers": '["x-team"]', "limits.tools": '{"relax": 2}'}
    texts |= {"mcp.client_result_tokens": '{"a": 7}', "mcp.on_cancel": "detach"}
    texts |= {"isolation.runners": "fresh", "isolation.no_new_privileges": "true"}
    texts |= {"isolation.network": "none", "isolation.files": "task", "isolation.writable": '["/srv"]'}
    texts |= {"mcp.card": "false", "mcp.card_tells": "message", "mcp.answer": "handle"}
    texts |= {"mcp.wake_chat": "claude-channel", "webhook.url": "https://lab.example/hook"}
    texts |= {"webhook.secret": f"whsec_{'AAAA' * 8}", "webhook.states": '["failed"]'}
    texts |= {"webhook.allowed_hosts": '["a"]', "webhook.allow_http": "true", "webhook.allow_private": "true"}
    texts |= {"broker.url": "redis://lab.example", "broker.namespace": "lab"}
    texts |= {
        "artifacts.url": "s3://lab",
        "artifacts.endpoint": "https://s3.example",
        "artifacts.links": "storage",
    }
    texts |= {"aws_batch.job_queue": '{"*": "a"}', "aws_batch.job_definition": '{"*": "a"}'}
    texts["aws_batch.server"] = "https://lab.example"
    texts |= {f"slurm.{table}": '{"*": "a"}' for table in SLURM_TABLES}
    given = load_from({variable(path): texts.get(path, "7") for path, _ in every_setting()})
    for path, _ in every_setting():
        assert value_of(given, path) != value_of(Settings(), path), path
    assert load_from(as_variables(given)) == given


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"url": "lab-artifacts"}, "artifacts.url"),
        ({"url": "s3:///lab"}, "artifacts.url"),
        ({"url": "file://lab/files"}, "artifacts.url"),
        ({"url": "s3://lab", "endpoint": "minio.example"}, "artifacts.endpoint"),
        ({"url": "file:///srv/lab", "links": "storage"}, "artifacts.links"),
    ],
)
def test_a_place_for_artifacts_that_can_be_none_is_refused(given: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError, match=r"write|set artifacts\.url") as refused:
        Settings.load(arguments={"artifacts": given}, environment={})
    assert refused.value.details["setting"] == setting


@pytest.mark.parametrize(
    ("given", "setting", "what_to_do"),
    [
        ({"url": "http://u:secret@lab.example"}, "url", "begins with redis://"),
        ({"namespace": "our lab"}, "namespace", "for example lab"),
    ],
)
def test_a_broker_s_settings_that_cannot_be_are_refused(
    given: dict[str, object], setting: str, what_to_do: str
) -> None:
    with pytest.raises(ConfigError, match=what_to_do) as refused:
        load({"broker": given})
    assert refused.value.details["setting"] == f"broker.{setting}"
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "setting", "what_to_do"),
    [
        ({"url": "https://lab.example"}, "webhook.secret", "such as these new ones: whsec_"),
        ({"url": "https://lab.example", "secret": "whsec_AAAA"}, "webhook.secret", "24 to 64 random bytes"),
        ({"url": "lab.example/hook"}, "webhook.url", "https://lab.example/hook"),
        ({"url": "https://ann:pw@lab.example"}, "webhook.url", "would not be sent"),
        ({"states": ["running"]}, "webhook.states", "the ends are succeeded"),
    ],
)
def test_a_webhook_that_could_not_be_sent_is_refused_with_what_to_write(
    given: dict[str, Any], setting: str, what_to_do: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(what_to_do)) as refused:
        load({"webhook": given})
    assert refused.value.details["setting"] == setting


def test_variables_that_are_no_settings_are_passed_over() -> None:
    assert load(BACKBURNER_SUPERVISOR="sup_1", BACKBURNER_TOKEN="t", BACKBURNER_PYTHONPATH="p") == load()


def test_without_a_store_each_app_has_a_file_of_its_own() -> None:
    assert load(XDG_STATE_HOME="/state").store == "sqlite:////state/backburner/lab.db"
    assert (
        Settings.load("a/../b", None, {"XDG_STATE_HOME": "/s"}).store == "sqlite:////s/backburner/a_.._b.db"
    )


def test_two_projects_whose_apps_have_one_name_have_a_store_each() -> None:
    def store(folder: str) -> str:
        return Settings.load("lab", None, {"XDG_STATE_HOME": "/s"}, folder=Path(folder)).store

    assert store("/home/ada/one") != store("/home/ada/two")
    assert store("/home/ada/one") == store("/home/ada/one")
    assert store("/home/ada/one").startswith("sqlite:////s/backburner/lab-")
    # An installed package keeps its store when its environment is made anew.
    assert store("/venv/lib/python3.11/site-packages/lab") == store("/new/lib/python3.13/site-packages/lab")


# -- what values look like -------------------------------------------------------------------------


def test_booleans_lists_and_mappings_are_what_they_are(toml: Path) -> None:
    arguments = {
        "mcp": {"task_tools": False, "client_patience": {"cursor*": 50, "my-host@2.*": "forever"}},
        "http": {"allow_anonymous": True, "allowed_hosts": ["lab.example"]},
    }
    given = load(arguments)
    assert (given.mcp.task_tools, given.http.allow_anonymous) == (False, True)
    assert given.http.allowed_hosts == ("lab.example",)
    assert given.mcp.client_patience == {"cursor*": 50, "my-host@2.*": "forever"}
    assert load(None, toml).mcp == McpSettings(task_tools=False, client_patience={"cursor*": 50, "other": 7})
    assert load(None, toml).http == HttpSettings(
        allowed_hosts=("lab.example", "lab.test"), auth=AuthSettings(issuer="us")
    )
    in_environment = {
        "BACKBURNER_MCP__TASK_TOOLS": "false",
        "BACKBURNER_MCP__CLIENT_PATIENCE": '{"cursor*": "50s", "my-host@2.*": "forever"}',
        "BACKBURNER_HTTP__ALLOW_ANONYMOUS": "true",
        "BACKBURNER_HTTP__ALLOWED_HOSTS": '["lab.example"]',
    }
    assert load_from(in_environment) == load(arguments)


def test_queues_are_put_over_the_default_ones(toml: Path) -> None:
    assert load(None, toml).queues["gpu_big"] == Queue(workers=4)
    assert load(None, toml).queues["cpu_heavy"] == Queue(workers=1)
    given = load({"queues": {"cpu_heavy": 3, "x": {"max_length": 5}}, "default_queue": "x"})
    assert (given.queues["cpu_heavy"], given.queues["x"]) == (Queue(3), Queue(max_length=5))
    assert load({"queues": {"x": Queue(7)}}).queues["x"] == Queue(7)
    assert load(BACKBURNER_QUEUES='{"y": {"workers": 0}}').queues["y"] == Queue(workers=0)


@pytest.mark.parametrize(
    ("arguments", "queue"),
    [
        ({}, "io"),
        ({"queues": {"io": 50}}, "io"),
        ({"queues": {"gpu_big": 4}, "async_queue": "io"}, "io"),
        ({"queues": {"gpu_big": 4}, "async_queue": "gpu_big"}, "gpu_big"),
        ({"queues": {"cpu_standard": 1}}, ""),
        ({"default_queue": "gpu_small"}, ""),
        ({"isolation": {"users": "61000-61009"}}, ""),
    ],
)
def test_tools_that_wait_have_many_workers_unless_workers_were_counted_without_them(
    arguments: dict[str, Any], queue: str
) -> None:
    assert load(arguments).async_queue == queue


def test_a_queue_that_is_asked_for_by_name_is_there(toml: Path) -> None:
    assert load(None, toml).queues["io"] == Queue(workers=64)
    assert "io" not in load({"isolation": {"users": "61000-61009"}}).queues
    assert load({"isolation": {"users": "61000-61099"}, "async_queue": "io"}).queues["io"].workers == 64


def test_queues_and_patience_come_from_one_place_alone(toml: Path) -> None:
    given = load({"queues": {"x": 1}, "mcp": {"client_patience": {"y": 1}}}, toml)
    assert "gpu_big" not in given.queues
    assert given.mcp.client_patience == {"y": 1}
    assert "gpu_big" not in load(None, toml, BACKBURNER_QUEUES='{"x": 1}').queues


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5h", 5400), ("1h30m", 5400), ("250ms", 0.25), ("2w", 1_209_600), (7, 7), (0, 0)],
)
def test_a_time_is_a_number_or_a_text(text: str | float, seconds: float) -> None:
    assert duration_s(text) == seconds
    assert load({"http": {"artifact_link_s": text}}).http.artifact_link_s == seconds


@pytest.mark.parametrize("value", ["soon", "-1", -1, "1x", "", "nan", float("inf"), True, None, "1h soon"])
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        duration_s(value)


def test_settings_do_not_change() -> None:
    given: Any = load()
    with pytest.raises(dataclasses.FrozenInstanceError):
        given.store = "sqlite://"
    with pytest.raises(dataclasses.FrozenInstanceError):
        given.http.auth.tokens = ""
    for mapping in (given.queues, given.mcp.client_patience):
        with pytest.raises(TypeError):
            mapping["x"] = 1


def test_a_group_can_be_put_in_the_place_of_another() -> None:
    given = load({"supervisor": {"heartbeat_s": 3}})
    changed = given.with_group(dataclasses.replace(given.supervisor, idle_exit_s=0))
    assert changed.supervisor == SupervisorSettings(heartbeat_s=3, idle_exit_s=0)
    assert dataclasses.replace(changed, supervisor=given.supervisor) == given


def test_settings_survive_the_way_to_another_process(toml: Path) -> None:
    given = load({"retention": {"ttl_s": 5}, "queues": {"q": {"workers": 9}}, "fair_share": "owner"}, toml)
    assert Settings.from_json(given.to_json()) == given
    alone = dataclasses.replace(given, queues={"q": Queue()}, default_queue="q")
    assert Settings.from_json(alone.to_json()).queues == {"q": Queue()}


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("colour", "red"),
        ("http.colour", "red"),
        ("http.auth.colour", "red"),
        ("http", "red"),
        ("retention.ttl_s", "soon"),
        ("limits.max_input_bytes", "many"),
        ("limits.max_input_bytes", -1),
        ("sqlite.synchronous", "off"),
        ("mcp.on_cancel", "some"),
        ("mcp.task_tools", "maybe"),
        ("mcp.client_patience", {"cursor": "soon"}),
        ("mcp.client_patience", 7),
        ("http.allowed_hosts", 7),
        ("http.public_url", "lab.example"),
        ("http.public_url", "https://[oops"),
        ("http.public_url", "https://lab.example/?a=b"),
        ("task_id.state_roots", ["hosts"]),
        ("default_queue", "nope"),
        ("async_queue", "nope"),
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
    *groups, name = setting.split(".")
    nested = reduce(lambda inner, group: {group: inner}, reversed(groups), {name: value})
    with pytest.raises(ConfigError) as refused:
        load(nested)
    assert refused.value.code == "config_error"
    assert refused.value.details["setting"].startswith(setting)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"BACKBURNER_HTTP__ALLOWED_HOSTS": "[oops"}, r'http.allowed_hosts .*write for example \["lab'),
        (
            {"BACKBURNER_HTTP__ALOWED_HOSTS": "[]"},
            "did you mean http.allowed_hosts.* known: allow_anonymous,",
        ),
        ({"BACKBURNER_HTPP__ALLOWED_HOSTS": "[]"}, "htpp is not valid: .* did you mean http[?]"),
        (
            {"BACKBURNER_SQLITE__SYNCHRONOUS": "off"},
            "sqlite.synchronous .*'off' should be 'full' or 'normal'",
        ),
        ({"BACKBURNER_SUPERVISOR__HEARTBEAT_S": "soon"}, "supervisor.heartbeat_s .*for example 30s"),
        (
            {"BACKBURNER_SUPERVISOR__HEARTBEAT_S": "1m"},
            "supervisor.lease_grace_s .*make it some times as long",
        ),
    ],
)
def test_a_refusal_says_what_to_write(variables: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_from(variables)


def test_a_setting_in_the_wrong_group_is_shown_its_place() -> None:
    with pytest.raises(ConfigError, match=r"did you mean supervisor.cancel_grace_s\?"):
        load({"mcp": {"cancel_grace_s": 1}})


def test_a_file_that_is_not_there_or_not_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load(file=tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("store = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(file=broken)


def test_every_setting_says_what_it_is_for() -> None:
    for path, entry in every_setting():
        assert entry.metadata["help"], path
