"""The topics of the course: for each its checks, traffic rules, reference values and mistakes."""
