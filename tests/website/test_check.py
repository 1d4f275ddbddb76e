"""The check of the built pages finds each fault, and none where there is none."""

import pytest

from website.check import problems

WHOLE = (
    '<h1 id="top">A</h1><h2>B</h2><a href="#top">up</a><a href="deep/b.html#c">b</a><img src="a.png" alt="a">'
)


@pytest.fixture
def site(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.png").touch()
    (tmp_path / "deep/b.html").write_text(
        '<p id="c"><a href="../a.html">a</a> <a href="https://elsewhere/">e</a>'
    )
    return tmp_path


def test_whole_pages_have_no_problems(site):
    (site / "a.html").write_text(WHOLE)
    assert problems(site) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ('<a href="gone.html">x</a>', "the link to gone.html leads to no file."),
        ('<a href="deep/">x</a>', "the link to deep/ leads to no file."),
        ('<a href="deep/b.html#d">x</a>', "the link to deep/b.html#d leads to no place on that page."),
        ('<a href="#gone">x</a>', "the link to #gone leads to no place on that page."),
        ('<img src="gone.png" alt="x">', "the link to gone.png leads to no file."),
        ('<img src="a.png">', "the picture a.png has no alt text."),
        ('<img src="a.png" alt="">', "the picture a.png has no alt text."),
        ("<h4>x</h4>", "a heading of level 4 follows one of level 2."),
        (
            '<script src="https://elsewhere/x.js"></script>',
            "it loads https://elsewhere/x.js from elsewhere, so it would not work offline.",
        ),
        (
            '<link rel="stylesheet" href="//elsewhere/x.css">',
            "it loads //elsewhere/x.css from elsewhere, so it would not work offline.",
        ),
    ],
)
def test_a_fault_is_named_with_its_page(site, fault, said):
    (site / "a.html").write_text(WHOLE + fault)
    assert problems(site) == [f"a.html: {said}"]
