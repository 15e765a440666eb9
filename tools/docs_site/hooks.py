"""What MkDocs calls while it builds the site, see mkdocs.yml."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from tools.docs_site.generated import pages
from tools.docs_site.links import broken
from tools.docs_site.notebooks import converted, notebooks
from tools.docs_site.repository import OUTSIDE, ROOT, adapted

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.attnviz")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The notebooks' place in the navigation, if there are any."""
    shown = [f"notebooks/{notebook.stem}.md" for notebook in notebooks()]
    if shown and config.nav is not None:
        config.nav.insert(2, {"Notebooks": shown})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in docs/: documents from elsewhere, notebooks, and generated pages."""
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    for place, text in pages():
        files.append(File.generated(config, place, content=text))
    for notebook in notebooks():
        for place, content in converted(notebook):
            files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - as MkDocs calls it
    """Links as they are in the site."""
    return adapted(markdown, page.file.src_uri)


def on_post_build(config: MkDocsConfig) -> None:
    """Check every link. A warning fails the build, which is strict."""
    for line in broken(Path(config.site_dir)):
        log.warning(line)
