"""Right values and permitted traffic, for checks to compare with; never in a student's process."""
