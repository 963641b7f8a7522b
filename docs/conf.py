"""Sphinx's settings for Diode's documentation: `make docs` builds it.

The source folder is the repository's, so that a link between docs/ and what lies beside it, such as
README.md, is the same on the site as where the files are read as they are.
"""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from diode_engine.version import __version__

ROOT = Path(__file__).resolve().parents[1]
# What the site has beside docs/; everything else in the repository is none of its business.
BESIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "datasets",
    "examples",
)
# The order of pages, by the part that the sidebar shows them in.
NAV = {
    "Begin": (
        "docs/getting-started",
        "docs/concepts",
        "docs/how-it-works",
        "README",
        "docs/results",
        "docs/toolkit",
    ),
    "Compile with it": (
        "docs/integration",
        "docs/dynamic-shapes",
        "docs/batch-invariance",
        "docs/serving-and-training",
        "docs/libraries",
        "docs/troubleshooting",
        "docs/debugging-a-choice",
        "docs/reliability",
    ),
    "Make models": (
        "docs/tuning",
        "docs/collection",
        "docs/scale",
        "docs/models",
        "docs/validation",
        "docs/registry",
        "docs/runs",
        "docs/dashboard",
        "docs/queries",
        "docs/shared-store",
    ),
    "Look up": (
        "docs/commands",
        "docs/api/index",
        "docs/formats",
        "docs/dataset-format",
        "datasets/README",
        "benchmarks/README",
        "benchmarks/regret/README",
        "SECURITY",
        "CHANGELOG",
    ),
    "Change it": (
        "CONTRIBUTING",
        "docs/architecture",
        "docs/extending",
        "examples/model-package/README",
        "docs/dashboard-development",
    ),
    "Notes": (
        "docs/notes/README",
        *sorted(
            f"docs/notes/{page.stem}"
            for page in (ROOT / "docs" / "notes").glob("*.md")
            if page.stem != "README"
        ),
    ),
}

project = "Diode"
author = "Diode's authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/README"
exclude_patterns = [entry.name for entry in ROOT.iterdir() if entry.name not in ("docs", *BESIDE)]
exclude_patterns.append("examples/model-package/diode_models_example")
include_patterns = ["**/*.md", "**/*.rst", "*.md"]

myst_heading_anchors = 3  # links such as models.md#confidence
suppress_warnings = ["myst.xref_missing_lexer"]

default_role = "code"  # docstrings say `name`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88

html_theme = "furo"  # brings its own scripts and no fonts: the site needs no network
html_title = f"Diode {release}"
html_copy_source = False
html_show_sphinx = False
html_additional_pages = {"index": "to_the_front.html"}
templates_path = ["templates"]


def _add_nav(app: Sphinx, docname: str, source: list[str]) -> None:
    """docs/README.md as it is read elsewhere knows nothing of toctrees."""
    if docname == root_doc:
        for caption, pages in NAV.items():
            entries = "\n".join(f"/{page}" for page in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_nav)
