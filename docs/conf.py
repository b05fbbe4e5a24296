"""How the pages become a site: `./dev docs`. Everything is in the repository; nothing is fetched, now or by readers."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext")]

import penstock  # noqa: E402

project = "Penstock"
author = "the Penstock authors"
release = version = penstock.__version__
copyright = author  # noqa: A001

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "public_names",
    "promises",
    "commands",
    "outside_links",
]
exclude_patterns = ["_site", "_ext", "_static"]
root_doc = "index"
default_role = "code"  # docstrings write `names` as people do
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
maximum_signature_line_length = 100

html_theme = "furo"
html_title = "Penstock"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
