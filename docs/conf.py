"""How Sphinx builds the site; ``docs/build`` calls it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import fsframework

sys.path.insert(0, str(Path(__file__).parent))

from sitepages.catalogue import rules

project = "fsframework"
author = "The fsframework authors"
copyright = f"2026 {author}"  # noqa: A001
version = release = fsframework.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
default_role = "code"
suppress_warnings = ["myst.strikethrough"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 60
napoleon_numpy_docstring = False
toc_object_entries_show_parents = "hide"
nitpicky = False

html_theme = "pydata_sphinx_theme"
html_title = "fsframework"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/mark.svg"
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "start": []}
html_theme_options = {
    "logo": {
        "text": "fsframework",
        "image_light": "_static/mark.svg",
        "image_dark": "_static/mark.svg",
    },
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button-field"],
    "search_bar_text": "Search",
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_depth": 3,
    "collapse_navigation": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": False,
}


class Rules(SphinxDirective):
    """The rules that the conformance checks of a kind of plugins test: ``{rules} sampler``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a list of the names of the checks and their rules."""
        lines = [f"`{name}`\n: {rule}\n" for name, rule in rules(self.arguments[0])]
        return self.parse_text_to_nodes("\n".join(lines))


_ATTRIBUTE: list[str] = []


def keep_attribute(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: Any) -> None:
    """Keep the text of an attribute: napoleon would take what is before a colon for its type."""
    _ATTRIBUTE[:] = lines


def restore_attribute(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: Any
) -> None:
    """Undo what napoleon did to the text of an attribute."""
    if what == "attribute":
        lines[:] = _ATTRIBUTE


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive, and treat attributes as text."""
    app.add_directive("rules", Rules)
    app.connect("autodoc-process-docstring", keep_attribute, priority=1)
    app.connect("autodoc-process-docstring", restore_attribute, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
