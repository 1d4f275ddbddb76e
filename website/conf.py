"""Configures Sphinx. Pages are read where they lie, from the top of the course; `contents` lists them."""

import subprocess
from pathlib import Path

from website import contents

COURSE = Path(__file__).parents[1]


def _course_version() -> str | None:
    """Return date and commit of the course, or nothing where git does not know them."""
    git = ["git", "-C", str(COURSE), "log", "-1", "--date=short", "--format=%ad, commit %h", "."]
    try:
        return subprocess.run(git, capture_output=True, check=True, text=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None


project = "Four Ranks"
copyright = "Four Ranks contributors, MIT license"
language = "en"
html_math_renderer = "mathml"
extensions = [
    "myst_nb",
    "sphinx.ext.githubpages",
    "website.cell_lexer",
    "website.pages",
    "website.formulas",
    "website.code",
    "website.runnable",
]
include_patterns = [
    f"{page}.*" for page in (contents.START, *sum(contents.contents(COURSE).values(), []), "docs/*")
]
exclude_patterns = [".*", "autograder", "build", "fourranks", "site", "solutions", "source", "tests"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_render_error_lexer = "text"  # our errors are sentences, not Python
nb_code_prompt_show = "Show the {type}"
nb_code_prompt_hide = "Hide the {type}"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # they come from elsewhere: a page shows what is stored
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

html_theme = "furo"
html_title = project
html_favicon = "static/favicon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["page.js"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#005b8f", "color-brand-content": "#005b8f"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
}
html_last_updated_fmt = _course_version()
html_copy_source = False
html_use_index = False
html_domain_indices = False
