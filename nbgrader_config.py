"""nbgrader's settings for this course; its commands and its JupyterLab pages read this file."""

import os
import sysconfig
import warnings

c = get_config()

# nbgrader calls alembic by its name, also when .venv is not activated.
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
# nbgrader 0.9 says this three times for each new submission; it changes nothing in the gradebook.
warnings.filterwarnings("ignore", r"Object of type <Submitted\w+> not in session")

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
# nbgrader's own steps, but that a copied cell does no harm.
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "autograder.nbgrader_plugin.OneOfEach",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
# A deleted test cell comes back and is graded, instead of waiting for a manual grade for ever.
c.OverwriteCells.add_missing_cells = True

# Students see what a test says of their work, and not the hidden tests.
c.GenerateFeedback.preprocessors = [
    "nbgrader.preprocessors.GetGrades",
    "autograder.nbgrader_plugin.HideTests",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
# Nobody else on this machine can listen to a kernel.
c.KernelManager.transport_encryption = "auto"
