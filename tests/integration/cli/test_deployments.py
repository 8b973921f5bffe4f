"""The examples of deployments: what they start and set is there, and workers have the time that they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.routing import Route
from typer.main import get_command

from backburner import Backburner
from backburner.cli import app as command_line
from backburner.settings import Settings, SupervisorSettings, every_setting, variable

EXAMPLES = Path(__file__).parents[3] / "examples" / "deployment"


def containers(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container of an example, and what it is a part of."""
    for document in yaml.safe_load_all((EXAMPLES / name).read_text()):
        yield from ((service, service) for service in document.get("services", {}).values())
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        yield from ((container, pod) for container in pod.get("containers", []))


def commands(name: str) -> Iterator[list[str]]:
    for container, _ in containers(name):
        probe = container.get("livenessProbe", {}).get("exec", {})
        for command in (container.get("command"), probe.get("command")):
            if command:
                yield command


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml"])
def test_every_command_and_every_setting_of_an_example_is_there(name: str) -> None:
    verbs = get_command(command_line)
    known = {variable(path) for path, _ in every_setting()}
    found = list(commands(name))
    assert {command[1] for command in found} >= {"serve", "worker"}
    for program, verb, *words in found:
        assert program == "backburner"
        parsed = verbs.commands[verb].make_context(verb, words)  # type: ignore[attr-defined]
        assert parsed.params
    for container, _ in containers(name):
        given = container.get("environment") or {
            each["name"]: each.get("value") for each in container.get("env", [])
        }
        ours = {key: value for key, value in given.items() if key.startswith("BACKBURNER_")}
        assert ours.keys() <= known
        plain = {key: re.sub(r"\$[({]\w+[)}]", "x", value) for key, value in ours.items() if value}
        Settings.load("lab", environment=plain)


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml"])
def test_workers_have_longer_to_end_than_they_give_their_tasks(name: str) -> None:
    for container, pod in containers(name):
        if container.get("command", ["", ""])[1] == "worker":
            text = str(pod.get("stop_grace_period") or pod.get("terminationGracePeriodSeconds"))
            assert int(text.removesuffix("s")) > SupervisorSettings().drain_grace_s


def test_probes_ask_for_what_the_server_has(tmp_path: Path) -> None:
    app = Backburner("probed", target="lab.py", store=f"sqlite:///{tmp_path}/tasks.db")
    paths = {route.path for route in app.http_app().routes if isinstance(route, Route)}
    asked = {
        probe["httpGet"]["path"]
        for container, _ in containers("kubernetes.yaml")
        for kind in ("readinessProbe", "livenessProbe")
        if "httpGet" in (probe := container.get(kind, {}))
    }
    assert asked == {"/readyz"}
    assert asked <= paths
