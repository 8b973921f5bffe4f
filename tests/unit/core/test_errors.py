"""Errors have stable codes and messages for people."""

import string

from backburner import errors
from backburner.errors import BackburnerError, TaskNotFound


def kinds() -> list[type[BackburnerError]]:
    found = vars(errors).values()
    return [*{kind for kind in found if isinstance(kind, type) and issubclass(kind, BackburnerError)}]


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in kinds()]
    assert len(codes) == len(set(codes)) > 20


class Value(str):
    """Fits any place of a message, also one that formats a number."""

    def __format__(self, spec: str) -> str:
        return "‹value›"

    def __repr__(self) -> str:
        return "‹value›"


def test_the_docstring_is_the_message() -> None:
    for kind in kinds():
        assert kind.__doc__, kind
        names = [name for _, name, _, _ in string.Formatter().parse(kind.__doc__) if name]
        error = BackburnerError.__new__(kind)
        BackburnerError.__init__(error, **dict.fromkeys(names, Value()))
        assert str(error).count("‹value›") == len(names)


def test_an_error_tells_programs_what_it_tells_people() -> None:
    error = TaskNotFound(task_id="tsk_x")
    assert error.to_dict() == {
        "code": "task_not_found",
        "message": str(error),
        "details": {"task_id": "tsk_x"},
    }
    assert "tsk_x" in str(error)
