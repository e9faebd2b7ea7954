"""What the site has beyond the files in docs/: pages made from the code and from the repository.

MkDocs calls the functions that begin with `on_`.  They add the README, the contributing guide and
the changelog, a page of the API for each package, and the tables of the recipe reference; and they
lead links to files outside docs/ to where these are on the site.
"""

import ast
import dataclasses
import inspect
import logging
import os
import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from basil.recipe.schema import OPTION_TABLES, SECTIONS
from basil.table import Table

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "basil"
PAGES = {  # of the site, that are files elsewhere in the repository
    "index.md": "README.md",
    "operate/reporting.md": "SECURITY.md",
    "contribute/contributing.md": "CONTRIBUTING.md",
    "contribute/changelog.md": "CHANGELOG.md",
}
LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
MARK = re.compile(r"^<!-- reference: (\w+) -->$", re.MULTILINE)
log = logging.getLogger("mkdocs.plugins.site")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A page of the API for each package, in the navigation."""
    for entry in config.nav or []:
        if "API" in entry:
            entry["API"] = [{"basil": "api/index.md"}] + [
                {f"basil.{name}": f"api/{name}.md"} for name in _packages()
            ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages that are no files in docs/."""
    for uri, path in PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    head = "# The package `basil`\n\n::: basil\n"
    files.append(File.generated(config, "api/index.md", content=head))
    for name in _packages():
        modules = "\n\n".join(f"::: {module}" for module in _modules(name))
        text = f"# basil.{name}\n\n{modules}\n"
        files.append(File.generated(config, f"api/{name}.md", content=text))
    for path in _linked_files():
        target = f"repository/{path}"
        files.append(File.generated(config, target, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The reference where a page asks for it, and links that hold on the site."""
    markdown = MARK.sub(lambda mark: REFERENCES[mark[1]](), markdown)
    uri = page.file.src_uri
    origin = PAGES.get(uri, f"docs/{uri}")
    here = os.path.dirname(uri)

    def mended(link: re.Match[str]) -> str:
        path, hash_sign, anchor = link[1].partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(origin), path))
        if not path or ":" in path or (full.startswith("docs/") and uri == origin[5:]):
            return link[1]
        target = _on_site(full)
        if target is None:
            log.warning("%s links to %s, which does not exist", origin, path)
            return link[1]
        return os.path.relpath(target, here or ".") + hash_sign + anchor

    return LINK.sub(mended, markdown)


def _on_site(path: str) -> str | None:
    """Where a file or folder of the repository is on the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    for uri, other in PAGES.items():
        if other == path:
            return uri
    if not (ROOT / path).exists():
        return None
    if path.startswith("src/basil"):
        parts = list(Path(path).with_suffix("").parts[1:])
        if parts[-1] == "__init__":
            parts.pop()
        page = f"api/{parts[1]}.md" if len(parts) > 1 else "api/index.md"
        return f"{page}#{'.'.join(parts)}"
    if (ROOT / path).is_dir():
        return "research/recipes.md"
    return f"repository/{path}"


def _linked_files() -> list[str]:
    """Files outside docs/ and src/ that a document links to."""
    found = set()
    for page in [ROOT / path for path in PAGES.values()] + sorted((ROOT / "docs").rglob("*.md")):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            full = Path(os.path.normpath(page.parent / link.partition("#")[0]))
            if ":" not in link and full.is_file() and full.is_relative_to(ROOT):
                found.add(str(full.relative_to(ROOT)))
    pages = set(PAGES.values())
    return sorted(path for path in found - pages if not path.startswith(("docs/", "src/")))


def _packages() -> list[str]:
    """The packages and modules right below `basil`."""
    found = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    found += [path.stem for path in SOURCE.glob("[!_]*.py")]
    return sorted(found)


def _modules(package: str) -> Iterator[str]:
    """A package and all modules in it, or the one module of that name."""
    yield f"basil.{package}"
    for path in sorted((SOURCE / package).rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        if parts[-1] != "__init__":
            yield ".".join(parts)
        elif len(parts) > 3:
            yield ".".join(parts[:-1])


def recipe_keys() -> str:
    """Every section of a recipe: its keys, their defaults and what they mean."""
    text = ["Beside the sections there is one key, `seed` (0)."]
    for name, section in SECTIONS.items():
        tables = OPTION_TABLES.get(name, [])
        meaning = _comments(section)
        meaning |= {key: f"[a name from this table](#entries-{name}-{key})" for key, _ in tables}
        rows = ["| key | default | meaning |", "| --- | --- | --- |"]
        for key in dataclasses.fields(section):
            if key.name != "options":
                default = "" if key.default is None else f"`{_toml(key.default)}`"
                rows.append(f"| `{key.name}` | {default} | {_cell(meaning.get(key.name, ''))} |")
        if tables:
            named = " and ".join(f"`{key}`" for key, _ in tables)
            rows.append(f"\nThe options of {named} stand in the same section.")
        text.append(f"### [{name}] {{ #keys-{name} }}\n\n" + "\n".join(rows))
    return "\n\n".join(text)


def recipe_entries() -> str:
    """Every entry of every table, with its options."""
    text = []
    for section, tables in OPTION_TABLES.items():
        for key, table in tables:
            rows = ["| name | what | options (default) |", "| --- | --- | --- |"]
            rows += [_entry(table, name) for name in table]
            head = f"### {section}.{key} {{ #entries-{section}-{key} }}"
            text.append(f"{head}\n\n" + "\n".join(rows))
    return "\n\n".join(text)


REFERENCES = {"keys": recipe_keys, "entries": recipe_entries}


def _entry(table: Table[Any], name: str) -> str:
    options = [f"`{key}` ({_toml(value)})" for key, value in table.options(name).items()]
    return f"| `{name}` | {_cell(table.summary(name))} | {', '.join(options)} |"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _comments(section: type) -> dict[str, str]:
    """What the comments beside the fields of a section say, or those right above them."""
    source = inspect.getsource(section)
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines = {}
    [body] = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines[node.target.id] = node.lineno
    said = {}
    taken = set(lines.values())
    for name, line in lines.items():
        above = []
        row = line - 1
        while row in comments and row not in taken:
            above.insert(0, comments[row])
            row -= 1
        said[name] = comments.get(line, " ".join(above))
    return said
