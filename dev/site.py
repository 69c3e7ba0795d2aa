"""Generates site pages besides docs/: the README as first page, changes, references from docstrings and OpenAPI, error pages.

It also names the pages that mkdocs.yml does not, and brings the script with which the search works on files.
"""

import re
from pathlib import Path
from typing import Any, Final

from error_pages import error_pages, linked, linked_names
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).parent.parent
_ADDED: Final = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "threat-model.md": "SECURITY.md",
}
_LAST: Final = "---\nsearch:\n  boost: 0.3\n---\n\n"
_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CLASSES: Final = (
    "delvec.connection.Connection",
    "delvec.table.DeltaTable",
    "delvec_commands.transaction.Transaction",
    "delvec_commands.maintenance.Maintenance",
    "delvec.spark.DeltaTable",
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append pages missing in mkdocs.yml to the navigation, so that new pages can be found, and a page for each error."""
    named = set(re.findall(r"[\w-]+\.md", str(config.nav)))
    for entries in (
        part for section in config.nav or () for part in section.values() if isinstance(part, list)
    ):
        if {"Errors": "errors.md"} in entries:
            at = entries.index({"Errors": "errors.md"})
            entries[at] = {"Errors": [{"All errors": "errors.md"}, *sorted(error_pages())]}
    rest = sorted(path.name for path in Path(config.docs_dir).glob("*.md") if path.name not in named)
    if rest and config.nav is not None:
        config.nav.append({"More": rest})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {name: (_ROOT / source).read_text(encoding="utf-8") for name, source in _ADDED.items()}
    pages["reference-python.md"] = _python()
    pages["reference-http.md"] = _http()
    pages |= error_pages()
    for name, content in pages.items():
        # In the search, explanations come before the many entries of a reference.
        lead = _LAST if name.startswith(("errors/", "reference-", "changelog")) else ""
        files.append(File.generated(config, name, content=lead + content))
    script = _ROOT / "dev" / "iframe_worker.js"
    files.append(File.generated(config, "assets/javascripts/iframe-worker.js", abs_src_path=str(script)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between the repository's pages to site links; links to other files become plain text."""
    del config
    if page.file.src_uri.startswith("errors/"):
        return markdown
    if page.file.src_uri == "errors.md":
        markdown = linked(markdown)
    if page.file.src_uri == "troubleshooting.md":
        markdown = linked_names(markdown)
    back = {source: name for name, source in _ADDED.items()}
    above = page.file.src_uri in _ADDED

    def lead(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        if target.startswith(("http:", "https:", "#", "mailto:")):
            return found[0]
        path, _, anchor = target.partition("#")
        path = f"../{path}" if above else path
        path = path.removeprefix("../docs/")
        if path.startswith("../"):
            known = back.get(path.removeprefix("../"))
            if known is None:
                return text
            path = known
        elif files.get_file_from_path(path) is None and not path.endswith(".md"):
            return text
        return f"[{text}]({path}{'#' + anchor if anchor else ''})"

    # Code blocks have no links.
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    done = "".join(part if part.startswith("```") else _LINK.sub(lead, part) for part in parts)
    return done.replace("](docs/images/", "](images/") if above else done


def _python() -> str:
    return "# Python reference\n\n" + "\n\n".join(f"::: {name}" for name in _CLASSES) + "\n"


def _http() -> str:
    """Return every endpoint in the OpenAPI document with description, parameters and errors."""
    from delvec_service.app import create_app
    from delvec_service.config import Settings

    document: dict[str, Any] = create_app(Settings(database_url="sqlite://", roots=("/data",))).openapi()
    lines = ["# HTTP reference", "", "From the OpenAPI document that a service has at `/openapi.json`.", ""]
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            lines += [f"## {method.upper()} {path}", "", str(operation.get("description", "")), ""]
            parameters = operation.get("parameters", [])
            if parameters:
                lines += ["| parameter | in | meaning |", "|---|---|---|"]
                lines += [
                    f"| `{one['name']}` | {one['in']} | {' '.join(str(one.get('description', '')).split())} |"
                    for one in parameters
                ]
                lines.append("")
            codes = ", ".join(f"`{code}`" for code in sorted(operation["responses"]))
            lines += [f"Answers: {codes}.", ""]
    return "\n".join(lines)
