"""The API held to its own OpenAPI document: nothing that is sent brings a 500 or what is not documented.

BACKBURNER_FUZZ_CASES says how much is sent.
"""

from __future__ import annotations

import logging
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

from tests.integration.web.conftest import Api
from tests.whole import FUZZ_CASES

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
#: Streams do not end by themselves; test_api_streams has them.
STREAMS = {"followEvents", "followLog"}
EXAMPLES = max(5, FUZZ_CASES // 80)


@pytest.fixture(scope="module")
def document(open_address: str) -> dict[str, Any]:
    found: dict[str, Any] = Api(open_address).get("/openapi.json")
    return found


def test_the_document_names_every_operation_once(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    names = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(names) == len(set(names)) >= 23
    assert set(names) >= STREAMS
    for path in document["paths"].values():
        for one in path.values():
            assert {"400", "401", "403", "503"} <= one["responses"].keys()


@pytest.mark.whole(but_first=1)
@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_nothing_that_a_fuzzer_sends_brings_what_is_not_documented(
    open_address: str, local: Api, document: dict[str, Any], mode: GenerationMode
) -> None:
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    known = local.finished("count")
    schema = schemathesis.openapi.from_dict(document)
    asked = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if operation.definition.raw["operationId"] in STREAMS:
            continue

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=[*HealthCheck],
            phases=[hypothesis.Phase.generate],
        )
        def ask(case: schemathesis.Case[Any]) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(base_url=f"{open_address}/api/v1", checks=CHECKS, timeout=30)
            if "task_id" in case.path_parameters and case.method != "DELETE":  # and one that is there
                case.path_parameters["task_id"] = known
                case.call_and_validate(base_url=f"{open_address}/api/v1", checks=CHECKS, timeout=30)

        try:
            ask()
        except hypothesis.errors.Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # of what takes nothing, nothing is wrong
    assert asked > 80
