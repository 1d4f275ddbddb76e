"""JupyterLab as `make lab` starts it: on the course's start page, and nothing written outside the course."""

from pathlib import Path

c = get_config()

course = Path(__file__).resolve().parent.parent
c.ServerApp.root_dir = str(course)
c.ServerApp.allow_root = True  # rented machines have no other user
c.KernelManager.transport_encryption = "auto"  # nobody else on this machine can listen to a kernel
c.ServerApp.contents_manager_class = "autograder.notebooks.contents.CourseContentsManager"
c.ContentsManager.hide_globs = ["__pycache__", "*.egg-info"]
c.LabApp.default_url = "/lab/tree/index.md"
c.LabApp.workspaces_dir = str(course / ".venv" / "workspaces")
