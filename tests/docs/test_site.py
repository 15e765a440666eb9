"""What builds the site of the documents: its links, its pages, and the check of the built pages."""

from __future__ import annotations

import base64
import inspect
import re
from pathlib import Path

import nbformat
import pytest
import yaml

import attnviz
from attnviz.domain.kinds import KINDS
from tools.docs_site import notebooks
from tools.docs_site.generated import pages
from tools.docs_site.links import broken
from tools.docs_site.repository import OUTSIDE, ROOT, adapted, place_of, source_of

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize(
    ("place", "written", "there"),
    [
        ("index.md", "[a](docs/cli.md)", "[a](cli.md)"),
        ("index.md", "![a](docs/figures/car.heads.png)", "![a](figures/car.heads.png)"),
        ("index.md", "[a](docs/decisions/)", "[a](decisions/index.md)"),
        ("model-card.md", "[a](../../docs/cli.md#attnviz-heads)", "[a](cli.md#attnviz-heads)"),
        ("ci-and-shell.md", "[a](../configs/README.md)", "[a](figure-sets.md)"),
        ("decisions/0001-x.md", "[a](../explorer.md)", "[a](../explorer.md)"),
        ("decisions/0001-x.md", "[a](../../LICENSE)", "[a](../license.txt)"),
        # What has no place in the site stays, and MkDocs warns of it.
        ("index.md", "[a](attnviz/api.py)", "[a](attnviz/api.py)"),
        ("index.md", "[a](docs/missing.md)", "[a](docs/missing.md)"),
        ("index.md", "[a](https://docs/cli.md)", "[a](https://docs/cli.md)"),
        ("index.md", "    [a](docs/cli.md)", "    [a](docs/cli.md)"),
        ("index.md", "```\n[a](docs/cli.md)\n```", "```\n[a](docs/cli.md)\n```"),
        ("index.md", "Text:\n- a\n- b\n  c\n- d", "Text:\n\n- a\n- b\n  c\n- d"),
        ("index.md", "# Title\n- a", "# Title\n- a"),
        ("cli.md", r"| `a\|b` | c\|d |", r"| `a|b` | c\|d |"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(place, written, there) -> None:
    assert adapted(written, place) == there


def test_places_lead_back_to_their_sources() -> None:
    for source, place in OUTSIDE.items():
        assert (ROOT / source).is_file()
        assert (place_of(source), source_of(place)) == (place, source)
    assert source_of("cli.md") == "docs/cli.md"


def test_every_public_name_and_every_result_is_on_a_page() -> None:
    text = dict(pages())
    for name in set(attnviz.__all__) - {"__version__"}:
        assert f"::: attnviz.{name}\n" in text["api/index.md"] + "\n"
    for kind in KINDS.values():
        assert f".{kind.maps.__name__}\n" in text["api/results.md"] + "\n"
        assert f".{kind.request.__name__}\n" in text["api/requests.md"]
    assert "`each_head` | `bool` | `False` |" in text["api/requests.md"]
    assert "::: attnviz.errors.UsageError" in text["api/errors.md"]


@pytest.mark.parametrize("name", sorted(set(attnviz.__all__) - {"__version__"}))
def test_the_docstring_of_a_public_name_gives_shapes_and_errors(name) -> None:
    public = getattr(attnviz, name)
    text = inspect.getdoc(public) or ""
    # Drawing raises nothing on purpose.
    assert "\nRaises:\n" in text or name.startswith("draw")
    if name in KINDS:
        assert re.search(r"\nReturns:\n .*\((gh|[A-Zn]), ", text)


def test_the_gallery_shows_every_figure_with_the_command_that_draws_it() -> None:
    text = dict(pages())["gallery.md"]
    for figure in (ROOT / "docs" / "figures").glob("*.png"):
        assert f"](figures/{figure.name})" in text
    assert "    attnviz score --dpi 120 " in text
    assert " docs/figures" in text
    assert str(ROOT) not in text


def test_every_generated_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    shown = {place for part in yaml.safe_load(text)["nav"] for place in _places(part)}
    assert {place for place, _ in pages()} <= shown


def _places(part: object) -> list[str]:
    if isinstance(part, dict):
        return [place for below in part.values() for place in _places(below)]
    return (
        [place for below in part for place in _places(below)] if isinstance(part, list) else [part]
    )


def site(folder: Path, **pages_of_it: str) -> list[str]:
    for name, text in pages_of_it.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return list(broken(folder))


def test_right_links_pass(tmp_path) -> None:
    (tmp_path / "x y.png").write_bytes(PIXEL)
    text = (
        '<p id="here"></p><a href="#here">1</a><a href="b.html#there">2</a><a href="/b.html">3</a>'
        '<img src="x%20y.png"><a href="https://example.org/">4</a><a href="mailto:a@b">5</a>'
        '<link rel="canonical" href="https://example.org/a.html">'
    )
    assert site(tmp_path, a=text, b='<h2 id="there"></h2>') == []


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ('<a href="c.html">', "a.html links to c.html: there is no such file"),
        ('<a href="#gone">', "a.html links to #gone: there is no such place in the page"),
        (
            '<a href="a.html#gone">',
            "a.html links to a.html#gone: there is no such place in the page",
        ),
        ('<img src="x.png">', "a.html links to x.png: there is no such file"),
        (
            '<script src="https://example.org/x.js">',
            "a.html loads https://example.org/x.js over the network",
        ),
        (
            '<link rel="stylesheet" href="//example.org/x.css">',
            "a.html loads //example.org/x.css over the network",
        ),
    ],
)
def test_wrong_links_are_told(tmp_path, element, said) -> None:
    assert site(tmp_path, a=element) == [said]


def test_a_notebook_becomes_a_page_with_its_outputs(tmp_path, monkeypatch) -> None:
    v4 = nbformat.v4
    outputs = [
        v4.new_output("display_data", {"image/png": base64.b64encode(PIXEL).decode()}),
        v4.new_output("stream", name="stdout", text="(4, 12, 18)\n"),
        v4.new_output(
            "display_data",
            {"text/html": '<style scoped>\n x\n</style>\n<table border="1" class="dataframe">'},
        ),
    ]
    frame = '<iframe srcdoc="a {\n}\n* { b }\n\n    c](five.ipynb)" width="9"></iframe>'
    outputs.append(v4.new_output("display_data", {"text/html": frame}))
    cells = [v4.new_markdown_cell("# Title\n\nText."), v4.new_code_cell("maps", outputs=outputs)]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "five.ipynb")
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path)
    (notebook,) = notebooks.notebooks()
    found = dict(notebooks.converted(notebook))
    page = found.pop("notebooks/five.md")
    assert page.startswith("# Title\n\n[Download this notebook](five.ipynb)\n\nText.")
    assert "(4, 12, 18)" in page
    assert "<table>" in page
    assert "style" not in page
    assert f"\n{frame.replace(chr(10), '&#10;')}\n" in page
    (figure,) = found
    assert found[figure] == PIXEL
    assert f"({Path(figure).name})" in page


def test_there_may_be_no_notebooks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path / "missing")
    assert notebooks.notebooks() == []
