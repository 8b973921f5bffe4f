"""Globals that only the main block of a script sets are found in its text."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from backburner.tools.targets import lost_globals

LOST = {
    "by a function that the main block calls": """
        N = 1
        @mcp.tool()
        def work(): return N
        def main():
            global N
            N = parser.parse_args().n
        if __name__ == "__main__":
            main()
        """,
    "by the main block itself": """
        N = 1
        @mcp.tool()
        def work(): return helper()
        def helper(): return N
        if __name__ == "__main__":
            N = int(sys.argv[1])
        """,
    "as an item of a global": """
        import asyncio
        N = {}
        @mcp.tool()
        def work(): return N["n"]
        def main(): configure(3)
        def configure(n): N["n"] = n
        if __name__ == '__main__':
            asyncio.run(main())
        """,
    "as an attribute of what another module has": """
        from settings import N
        @mcp.tool()
        def work(): return N.count
        if __name__ == "__main__":
            N.count = 3
        """,
}
NOT_LOST = {
    "it is set at import as well": """
        N = 1
        def configure():
            global N
            N = 3
        configure()
        @mcp.tool()
        def work(): return N
        if __name__ == "__main__":
            configure()
        """,
    "no tool reads it": """
        @mcp.tool()
        def work(): return 1
        if __name__ == "__main__":
            args = parser.parse_args()
            mcp.settings.port = args.port
            mcp.run()
        """,
    "it is the environment, which tasks have": """
        import os
        @mcp.tool()
        def work(): return os.environ["N"]
        if __name__ == "__main__":
            os.environ["N"] = "3"
        """,
    "it is a local of main": """
        @mcp.tool()
        def work(n): return n
        def main():
            n = 3
            mcp.run(n)
        if __name__ == "__main__":
            main()
        """,
    "it is no Python": "def (",
}


@pytest.mark.parametrize("how", LOST)
def test_a_global_that_is_set_under_main_alone_is_found(how: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.py"
    file.write_text(textwrap.dedent(LOST[how]))
    (found,) = lost_globals(file)
    assert found.name == "N"
    assert f"lab.py:{found.line} sets N" in str(found)
    assert "N" in file.read_text().splitlines()[found.line - 1]


@pytest.mark.parametrize("why", NOT_LOST)
def test_what_tasks_see_too_is_not_complained_of(why: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.py"
    file.write_text(textwrap.dedent(NOT_LOST[why]))
    assert lost_globals(file) == []
