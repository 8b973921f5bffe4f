"""Print the files of each walk beside those that the architecture page names: `python -m tests.walks`."""

import asyncio
import re
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.services import RedisServer, started
from tests.walks.walk import PAGE, celery_walk, local_walks, named_on_page


def main() -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        walks = asyncio.run(local_walks(Path(one)))
        with started(RedisServer()) as redis:
            walks |= asyncio.run(celery_walk(Path(other), redis.url))
    for walk, files in walks.items():
        named = named_on_page(walk)
        print(f"\n{walk}: {len(files)} files, {len(named)} named on the page")
        for file in sorted(files | named):
            print(f"  {' ' if file in files & named else '+' if file in files else '-'} {file}")
        if "--write" in sys.argv:
            write(walk, files)


def write(walk: str, files: set[str]) -> None:
    """Replace the list of a walk in docs/explanation/architecture.md."""
    listed = textwrap.fill(", ".join(f"`{file}`" for file in sorted(files)), 120, break_on_hyphens=False)
    block = f"<!-- walk: {walk} -->\n{listed}\n<!-- /walk -->"
    PAGE.write_text(
        re.sub(f"<!-- walk: {walk} -->.*?<!-- /walk -->", block, PAGE.read_text(), flags=re.DOTALL)
    )


if __name__ == "__main__":
    main()
