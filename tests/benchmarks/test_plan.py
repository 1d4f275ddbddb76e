"""The tables of docs/plan.md and docs/plan_rows.csv are what the cost model predicts today."""

from benchmarks import plan


def test_the_page_about_plans_has_the_predictions_of_today():
    text = (plan.DOCS / plan.PAGE).read_text(encoding="utf-8")
    assert plan.page(text) == text, "make it anew: python -m benchmarks.plan"


def test_the_rows_of_one_node_are_the_predictions_of_today():
    stored = (plan.DOCS / plan.ROWS).read_text(encoding="utf-8")
    assert plan.rows() == stored, "make them anew: python -m benchmarks.plan"
