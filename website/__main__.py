"""Builds the site and checks it: `make site` calls this."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

from website import check

COURSE = Path(__file__).parents[1]
SITE = COURSE / "site"
# A warning fails the build, after all of them were shown: most are links that lead nowhere.
OPTIONS = ("--quiet", "--fail-on-warning", "--jobs=auto", f"--conf-dir={COURSE / 'website'}")
DONE = """The site is in site/. To look at it, open site/index.html, or type

    python3 -m http.server --bind 127.0.0.1 --directory site

and open http://127.0.0.1:8000/"""
FAULTY = "The site has faults, which are above; site/ is as it was."


def main() -> None:
    """Build all pages and put them into site/, or end with what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        if build_main([*OPTIONS, f"--doctree-dir={folder}/doctrees", str(COURSE), str(pages)]):
            sys.exit(FAULTY)
        if problems := check.problems(pages):
            sys.exit("\n".join([*problems, FAULTY]))
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.move(pages, SITE)
    print(DONE)


if __name__ == "__main__":
    main()
