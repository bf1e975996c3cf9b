"""Configuration of the documentation: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from bai_services import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "bai-hub"
copyright = "bai-hub contributors"
version = release = __version__

extensions = ["myst_parser", "generated"]
exclude_patterns = ["_build"]
# An unknown page, anchor or option fails the build, which runs with --fail-on-warning.
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# Smart quotes would replace the "--" of options such as "--user" with a dash.
smartquotes = False

html_theme = "pydata_sphinx_theme"
html_title = f"bai-hub {__version__}"
html_static_path = ["_static"]
html_css_files = ["bai-hub.css"]
# These pages belong to no section and need no section navigation.
html_sidebars = {"tutorial": [], "pipeline-tutorial": [], "changelog": []}
html_use_index = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 1,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
}
