"""wksm_vault_index and wksm_vault_search: Markdown notes, their links, and full-text search."""

from __future__ import annotations

import json
import os
import posixpath
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import unquote

from pydantic import Field

from ...tools.context import TaskContext
from .tree import Database, Problems, database_path, folder_at, open_database, require_extra, shown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token


_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*$\r?\n?", re.DOTALL | re.MULTILINE)
_TAG = re.compile(r"(?<![\w#/&])#([^\W\d][\w/-]*|\d[\w/-]*[^\W\d][\w/-]*)")
_WIKI_LINK = re.compile(r"\[\[([^\[\]\n|#^]*)((?:[#^][^\[\]\n|]*)?)(?:\|([^\[\]\n]*))?\]\]")
_MAX_FRONT_MATTER = 64 * 1024


class Link(NamedTuple):
    """`[[target#place|text]]`, or a Markdown link, which is relative to the note's folder."""

    target: str
    place: str
    line: int
    relative: bool = False


@dataclass
class Note:
    title: str = ""
    headings: list[tuple[int, str, int]] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    links: list[Link] = field(default_factory=list)
    front_matter: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    problem: str = ""


def read_note(source: str) -> Note:
    """Parse a note. Invalid front matter is reported in `problem`."""
    note = Note()
    body, first_line = source.removeprefix("\ufeff"), 0
    if found := _FRONT_MATTER.match(body):
        note.front_matter, note.problem = _read_front_matter(found[1])
        first_line = body.count("\n", 0, found.end())
        body = body[found.end() :]
    parts: list[str] = []
    tokens = _parser().parse(body)
    for index, token in enumerate(tokens):
        if token.type in ("fence", "code_block"):
            parts.append(token.content)
        if token.type != "inline":
            continue
        line = first_line + (token.map[0] if token.map else 0) + 1
        text = "".join(_read_inline(token.children or [], line, note))
        parts.append(text)
        if tokens[index - 1].type == "heading_open":
            note.headings.append((int(tokens[index - 1].tag[1]), text.strip(), line))
    note.text = "\n".join(parts)
    note.tags.update(_front_tags(note.front_matter))
    first_heading = next((text for level, text, _ in note.headings if level == 1), "")
    note.title = _storable(str(note.front_matter.get("title") or "")).strip() or first_heading
    return note


def _read_inline(tokens: list[Token], line: int, note: Note) -> Iterator[str]:
    """Yield the text of a paragraph, and add its links and tags to the note."""
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            line += 1
            yield "\n"
        elif token.type == "wiki_link":
            note.links.append(Link(token.meta["target"], token.meta["place"], line))
            yield token.content
        elif token.type == "link_open":
            target = str(token.attrGet("href") or "")
            path, _, place = target.partition("#")
            if path.lower().endswith(".md") and "://" not in path:
                note.links.append(Link(unquote(path), place, line, relative=True))
        elif token.type == "text":
            note.tags.update(tag.rstrip("/").lower() for tag in _TAG.findall(token.content))
            yield token.content
        elif token.type in ("code_inline", "image"):
            yield token.content


def _read_front_matter(text: str) -> tuple[dict[str, Any], str]:
    import yaml

    try:
        if len(text) > _MAX_FRONT_MATTER:
            raise ValueError("it is longer than 64 kB")
        if "*" in text and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError("it has aliases")  # they can expand to gigabytes
        found = yaml.safe_load(text)
        if found is not None and not isinstance(found, dict):
            raise ValueError("it is not a list of names and values")
        plain: dict[str, Any] = json.loads(json.dumps(found or {}, default=str, allow_nan=False))
        return plain, ""
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = getattr(error, "problem", None) or str(error)
        return {}, f"the front matter is not valid: {reason}"


def _front_tags(front_matter: dict[str, Any]) -> Iterator[str]:
    for key in ("tags", "tag"):
        given = front_matter.get(key) or []
        for tag in re.split(r"[,\s]+", given) if isinstance(given, str) else given:
            if isinstance(tag, str | int) and str(tag).strip("# /"):
                yield _storable(str(tag)).strip("# /").lower()


def _storable(text: str) -> str:
    """Replace surrogates and NUL, which YAML escapes allow and a database refuses."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.inline.ruler.before("link", "wiki_link", _wiki_link)
    return parser


def _wiki_link(state: StateInline, silent: bool) -> bool:
    """Parse `[[target#place|text]]`: an inline rule of markdown-it."""
    found = _WIKI_LINK.match(state.src, state.pos, state.posMax)
    if found is None or not (found[1].strip() or found[2]):
        return False
    if not silent:
        token = state.push("wiki_link", "", 0)
        target = found[1].strip().removesuffix("\\")  # in a table, the bar is written as \|
        token.meta = {"target": target, "place": found[2].strip()}
        token.content = found[3] or target or found[2]
    state.pos = found.end()
    return True


_SCHEMA = """
CREATE TABLE IF NOT EXISTS vault (path TEXT PRIMARY KEY, indexed_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS notes (
    note INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, shown TEXT NOT NULL, key TEXT NOT NULL,
    name TEXT NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, title TEXT NOT NULL,
    front_matter TEXT NOT NULL, problem TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS notes_by_key ON notes (key);
CREATE INDEX IF NOT EXISTS notes_by_name ON notes (name);
CREATE TABLE IF NOT EXISTS headings (
    note INTEGER NOT NULL REFERENCES notes ON DELETE CASCADE, level INTEGER NOT NULL, text TEXT NOT NULL,
    line INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS headings_by_note ON headings (note);
CREATE TABLE IF NOT EXISTS tags (
    note INTEGER NOT NULL REFERENCES notes ON DELETE CASCADE, tag TEXT NOT NULL, PRIMARY KEY (tag, note)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tags_by_note ON tags (note);
-- `target_note` is null for a link to a note that does not exist.
CREATE TABLE IF NOT EXISTS links (
    note INTEGER NOT NULL REFERENCES notes ON DELETE CASCADE, target TEXT NOT NULL, place TEXT NOT NULL,
    line INTEGER NOT NULL, key TEXT NOT NULL, target_note INTEGER
);
CREATE INDEX IF NOT EXISTS links_by_note ON links (note);
CREATE INDEX IF NOT EXISTS links_by_target ON links (target_note);
-- The other files of the vault, which a link may name as well.
CREATE TABLE IF NOT EXISTS attachments (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words
    USING fts5 (title, headings, tags, text, tokenize = 'porter unicode61');
"""
# A link names a note by its path in the vault, or by its name: then the note with the shortest path wins.
_RESOLVE = """
UPDATE links SET target_note = CASE
    WHEN key = '' THEN note
    ELSE coalesce(
        (SELECT notes.note FROM notes WHERE notes.key = links.key),
        (SELECT notes.note FROM notes WHERE notes.name = links.key
            ORDER BY length(notes.key) - length(replace(notes.key, '/', '')), notes.key LIMIT 1)
    ) END
"""
_SEARCH = """
SELECT notes.note, notes.shown, notes.title, snippet(words, 3, '**', '**', '…', 24),
    bm25(words, 8, 4, 4, 1) AS rank
FROM words JOIN notes ON notes.note = words.rowid
WHERE words MATCH ? AND (? IS NULL OR EXISTS (
    SELECT 1 FROM tags WHERE tags.note = notes.note AND (tag = ? OR tag LIKE ? ESCAPE '!')))
ORDER BY rank LIMIT ?
"""
_BATCH = 200
_SHOWN_LINKS = 100
_MAX_NOTE_BYTES = 16 << 20


def wksm_vault_index(
    path: Annotated[str, Field(description="The folder of the vault")],
    database: Database = None,
    *,
    ctx: TaskContext,
) -> dict[str, Any]:
    """Index a vault of Markdown notes: titles, headings, tags, front matter, [[links]], and every word.

    Unchanged notes are not read again. Broken links are listed. Search it with wksm_vault_search. The index
    is in the user's state folder, or in `database`.
    """
    began = time.perf_counter()
    require_extra()
    root = folder_at(path)
    where = database_path("vault", root, database)
    with open_database(where, _SCHEMA) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        index = _Index(connection, root, ctx)
        index.run()
        result = index.result()
        report = {"vault": shown(root), "broken_links": index.broken_links(), "problems": index.problems}
        if report["broken_links"] or report["problems"]:
            ctx.artifact(json.dumps(report, indent=1).encode(), "report.json", kind="report")
    return {**result, "database": shown(where), "duration_seconds": round(time.perf_counter() - began, 3)}


@dataclass
class _Index:
    """One run of the indexer. Each note is indexed when it is read, so a retry resumes."""

    database: sqlite3.Connection
    root: Path
    ctx: TaskContext
    problems: Problems = field(default_factory=Problems)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("added", "changed", "removed"), 0))
    processed: int = 0
    _unlisted: list[bytes] = field(default_factory=list)
    _attachments: list[tuple[str]] = field(default_factory=list)

    def run(self) -> None:
        known = {
            path: (note, size, mtime_ns)
            for note, path, size, mtime_ns in self.database.execute(
                "SELECT note, path, size, mtime_ns FROM notes"
            )
        }
        pending = []
        for path, status in self._walk():
            self.processed += 1
            note, *last = known.pop(path, (None, None, None))
            if last != [status.st_size, status.st_mtime_ns]:
                pending.append((path, status, note))
        unlisted = tuple(self._unlisted)
        gone = [note for path, (note, *_) in known.items() if not path.startswith(unlisted)]
        self._read_all(pending)
        with self.database as database:
            self._delete(gone)
            self.counts["removed"] = len(gone)
            database.execute("DELETE FROM attachments")
            database.executemany("INSERT OR IGNORE INTO attachments VALUES (?)", self._attachments)
            database.execute(_RESOLVE)
            database.execute("INSERT OR REPLACE INTO vault VALUES (?, ?)", (shown(self.root), time.time()))

    def _walk(self) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield every note with its path in the vault, without hidden folders such as .obsidian."""
        top = os.fsencode(self.root).rstrip(b"/") + b"/"

        def not_listed(error: OSError) -> None:
            folder = error.filename[len(top) :]
            self.problems.add(folder or b".", error)
            self._unlisted.append(folder)

        for folder, folders, files in os.walk(top, onerror=not_listed):
            self.ctx.raise_if_cancelled()
            folders[:] = [name for name in folders if not name.startswith(b".")]
            for name in files:
                path = os.path.join(folder, name)[len(top) :]  # noqa: PTH118  (bytes)
                if not name.lower().endswith((b".md", b".markdown")):
                    self._attachments += [(_key(shown(path)),), (_key(shown(name)),)]
                    continue
                try:
                    yield path, os.stat(top + path)  # noqa: PTH116  (bytes)
                except OSError as error:
                    self.problems.add(path, error)

    def _read_all(self, pending: list[tuple[bytes, os.stat_result, int | None]]) -> None:
        total = len(pending)
        for start in range(0, total, _BATCH):
            with self.database:
                for done, (path, status, note) in enumerate(pending[start : start + _BATCH], start + 1):
                    self.ctx.raise_if_cancelled()
                    self.ctx.progress(
                        done, total, phase="index", message=f"Processing {done} of {total} files..."
                    )
                    self._read(path, status, note)

    def _read(self, path: bytes, status: os.stat_result, number: int | None) -> None:
        try:
            if status.st_size > _MAX_NOTE_BYTES:
                raise ValueError("longer than 16 MB, not indexed")
            file = self.root / os.fsdecode(path)
            if not file.is_file():
                raise ValueError("not a plain file")
            note = read_note(file.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            self.problems.add(path, error)
            return
        if number is not None:
            self._delete([number])
        self._insert(path, status, note)
        self.counts["added" if number is None else "changed"] += 1

    def _insert(self, path: bytes, status: os.stat_result, note: Note) -> None:
        plain = shown(path)
        key = _key(plain)
        title = note.title or posixpath.splitext(posixpath.basename(plain))[0]
        row = (
            path,
            plain,
            key,
            posixpath.basename(key),
            status.st_size,
            status.st_mtime_ns,
            title,
            json.dumps(note.front_matter),
            note.problem,
        )
        insert = (
            "INSERT INTO notes (path, shown, key, name, size, mtime_ns, title, front_matter, problem)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        number = self.database.execute(insert, row).lastrowid
        many = self.database.executemany
        many("INSERT INTO headings VALUES (?, ?, ?, ?)", ((number, *heading) for heading in note.headings))
        many("INSERT INTO tags VALUES (?, ?)", ((number, tag) for tag in note.tags))
        many(
            "INSERT INTO links VALUES (?, ?, ?, ?, ?, NULL)",
            ((number, *link[:3], _link_key(link, plain)) for link in note.links),
        )
        words = (
            number,
            title,
            "\n".join(text for _, text, _ in note.headings),
            " ".join(note.tags),
            note.text,
        )
        self.database.execute(
            "INSERT INTO words (rowid, title, headings, tags, text) VALUES (?, ?, ?, ?, ?)", words
        )

    def _delete(self, notes: list[int]) -> None:
        self.database.executemany("DELETE FROM words WHERE rowid = ?", ((note,) for note in notes))
        self.database.executemany("DELETE FROM notes WHERE note = ?", ((note,) for note in notes))

    def broken_links(self) -> list[dict[str, Any]]:
        rows = self.database.execute(
            "SELECT notes.shown, line, target FROM links JOIN notes USING (note)"
            " WHERE target_note IS NULL AND links.key NOT IN attachments ORDER BY notes.shown, line"
        )
        return [{"path": path, "line": line, "target": target} for path, line, target in rows]

    def result(self) -> dict[str, Any]:
        for path, problem in self.database.execute("SELECT path, problem FROM notes WHERE problem <> ''"):
            self.problems.add(path, problem)
        counts = self.database.execute(
            "SELECT (SELECT count(*) FROM notes) AS notes, (SELECT count(*) FROM headings) AS headings,"
            " (SELECT count(DISTINCT tag) FROM tags) AS tags, (SELECT count(*) FROM links) AS links"
        )
        names = [column[0] for column in counts.description]
        updated = self.counts["added"] + self.counts["changed"]
        broken = self.broken_links()
        return {
            "files_processed": self.processed,
            "files_skipped": self.processed - updated,
            "files_updated": updated,
            **self.counts,
            **dict(zip(names, counts.fetchone(), strict=True)),
            "broken_links_total": len(broken),
            "broken_links": broken[:_SHOWN_LINKS],
            **self.problems.summary(),
        }


def wksm_vault_search(
    query: Annotated[str, Field(description='Words, "a phrase", pre*, a OR b, title:word')],
    path: Annotated[str, Field(description="The folder of the indexed vault")],
    tag: Annotated[str | None, Field(description="Only notes with this tag, or one below it")] = None,
    limit: Annotated[int, Field(description="The maximum number of notes, up to 100")] = 10,
    database: Database = None,
) -> dict[str, Any]:
    """Search an indexed vault: words, "a phrase", pre*, a OR b, title:word. The best match comes first.

    Each hit has its headings, tags, outgoing links and backlinks.
    """
    where = database_path("vault", folder_at(path), database)
    if not where.exists():
        raise FileNotFoundError(f"The vault {shown(path)} is not indexed yet: call wksm_vault_index first.")
    with closing(sqlite3.connect(f"{where.as_uri()}?mode=ro", uri=True)) as connection:
        hits = _search(connection, query, tag, max(1, min(limit, 100)))
        return {"query": query, "hits": [_hit(connection, *row) for row in hits]}


def _search(
    connection: sqlite3.Connection, query: str, tag: str | None, limit: int
) -> list[tuple[int, str, str, str, float]]:
    tag = tag.strip("# /").lower() if tag else None
    below = None if tag is None else tag.replace("!", "!!").replace("%", "!%").replace("_", "!_") + "/%"
    try:
        return connection.execute(_SEARCH, (query, tag, tag, below, limit)).fetchall()
    except sqlite3.OperationalError:  # invalid FTS5 syntax: search for the words
        words = " ".join('"' + word.replace('"', '""') + '"' for word in query.split())
        return connection.execute(_SEARCH, (words, tag, tag, below, limit)).fetchall() if words else []


def _hit(
    connection: sqlite3.Connection,
    note: int,
    path: str,
    title: str,
    snippet: str,
    rank: float,
) -> dict[str, Any]:
    def column(statement: str) -> list[str]:
        return [row[0] for row in connection.execute(statement, (note,))]

    return {
        "path": path,
        "title": title,
        "snippet": snippet,
        "score": round(-rank, 4),
        "tags": column("SELECT tag FROM tags WHERE note = ? ORDER BY tag"),
        "headings": column("SELECT text FROM headings WHERE note = ? ORDER BY line LIMIT 50"),
        "links": column("SELECT DISTINCT target FROM links WHERE note = ? ORDER BY target LIMIT 50"),
        "backlinks": column(
            "SELECT DISTINCT notes.shown FROM links JOIN notes USING (note)"
            " WHERE target_note = ?1 AND notes.note <> ?1 ORDER BY notes.shown LIMIT 50"
        ),
    }


def _key(target: str) -> str:
    """Return a link target or a path without suffix and case, to compare them."""
    key = target.strip().removeprefix("./").strip("/").casefold()
    return key.removesuffix(".markdown").removesuffix(".md")


def _link_key(link: Link, note: str) -> str:
    place = posixpath.join(posixpath.dirname(note), link.target) if link.relative else link.target
    return _key(posixpath.normpath(place)) if place else ""
