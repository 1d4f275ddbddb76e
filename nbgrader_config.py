"""nbgrader's settings for this course; its commands and its JupyterLab pages read this file."""

import os
import sys
import sysconfig
import warnings
from pathlib import Path

c = get_config()
course = Path(__file__).resolve().parent

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

# A clone has only their text; Generate, in formgrader as on the command line, looks for the notebooks.
if any(not text.with_suffix(".ipynb").exists() for text in course.glob("source/*/exercise.py")):
    from autograder.notebooks.place import place_missing

    place_missing(course)

# exercises/ and solutions/ are committed, so they always exist: make them again instead of skipping them.
c.GenerateAssignment.force = True
c.GenerateSolution.force = True
c.ClearSolutions.code_stub = {"python": "# Your code here\nraise NotImplementedError"}
c.ClearSolutions.text_stub = "Your answer here."

# Cells of students' run in a sandbox, test cells outside of it: docs/security.md.
c.Autograde.exporter_class = "autograder.grading.nbgrader_plugin.CarefulExporter"
c.Autograde.sanitize_preprocessors = [
    "autograder.grading.nbgrader_plugin.Restore",
    "nbgrader.preprocessors.OverwriteCells",
]
c.Autograde.autograde_preprocessors = [
    "autograder.grading.nbgrader_plugin.Referee",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# Handing out and in without a platform. For a class on one machine: a folder that all of its users can write.
c.Exchange.root = str(course / "exchange")
if os.access(course, os.W_OK):
    (course / "exchange").mkdir(exist_ok=True)
# Everybody can write in it, links to files of other students too.
c.ExchangeFactory.collect = "autograder.grading.exchange.CarefulCollect"

# Names that students chose on a platform are no formulas in a table, and no lines.
c.ExportApp.plugin_class = "autograder.grading.export.TableExport"

# The Validate button runs a notebook in a kernel; checks bound their own time, this is for other cells.
c.Execute.timeout = 180

# Students see what a test says of their work, and not the hidden tests. A penalty for coming late may depend
# on the points, and some of them were given by hand since it was set.
c.GenerateFeedback.preprocessors = [
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.GetGrades",
    "autograder.grading.nbgrader_plugin.HideTests",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
# HTML in a student's Markdown must not run in a browser. nbgrader's own templates pass what comes of Markdown
# to the second filter only, which by itself would make links to old Jupyter servers relative. The third one
# by itself ends in an error at a code that names no colour.
c.HTMLExporter.filters = {
    "markdown2html": "autograder.grading.markdown.to_html",
    "strip_files_prefix": "autograder.grading.markdown.clean",
    "ansi2html": "autograder.grading.markdown.in_colours",
}
# Nor must HTML in a name. formgrader has no setting for its lists; only its server needs this.
c.HTMLExporter.preprocessors = ["autograder.grading.formgrader.EscapeNames"]
if formgrader := sys.modules.get("nbgrader.server_extensions.formgrader.formgrader"):
    from autograder.grading.formgrader import Pages

    formgrader.Environment = Pages
    # Nor must a page that was handed in beside a notebook, to which an answer may have a link.
    formgrader.handlers.SubmissionFilesHandler.content_security_policy = "sandbox"
# Nobody else on this machine can listen to a kernel.
c.KernelManager.transport_encryption = "auto"
