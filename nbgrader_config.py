"""nbgrader's settings for this course; its commands and its JupyterLab pages read this file."""

c = get_config()

c.CourseDirectory.course_id = "fourranks"
c.CourseDirectory.source_directory = "source"
c.CourseDirectory.release_directory = "exercises"
c.CourseDirectory.solution_directory = "solutions"
# source/ holds the text of the notebooks, which is nobody's extra file.
c.CourseDirectory.ignore = [
    ".ipynb_checkpoints",
    "__pycache__",
    "*.pyc",
    "feedback",
    "exercise.py",
    "lecture.py",
]

# exercises/ and solutions/ are committed, so they always exist: make them again instead of skipping them.
c.GenerateAssignment.force = True
c.GenerateSolution.force = True
c.ClearSolutions.code_stub = {"python": "# Your code here\nraise NotImplementedError"}
c.ClearSolutions.text_stub = "Your answer here."

# A check bounds the time of each case itself; this is for student cells that never end.
c.Execute.timeout = 120
# nbgrader gives 0 to a right answer when anything, even a C library, writes to stderr.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"(?s).*"
# A deleted test cell comes back and is graded, instead of waiting for a manual grade for ever.
c.OverwriteCells.add_missing_cells = True
