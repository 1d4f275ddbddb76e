"""Serves notebooks to JupyterLab so that opening one changes nothing; `.jupyter/` has `make lab` use it.

When its kernel is ready, JupyterLab writes into a notebook what the kernel says of its language, down to
the version of Python. Where the file says anything else the notebook counts as changed: it is saved after
two minutes, and closing it asks. The course's notebooks name the language alone, since they are opened with
any Python. So the rest is added when one is read, and left out again when it is saved.
"""

from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

from autograder.notebooks.metadata import METADATA

KERNEL = METADATA["kernelspec"]["name"]
STORED = METADATA["language_info"]


class CourseContentsManager(AsyncLargeFileManager):
    """Completes the language of notebooks that name it alone, and stores those as they were."""

    async def get(
        self,
        path: str,
        content: bool = True,
        type: str | None = None,
        format: str | None = None,
        require_hash: bool = False,
    ) -> dict[str, Any]:
        model = await super().get(path, content, type, format, require_hash)
        if content and model["type"] == "notebook":
            metadata = model["content"]["metadata"]
            if metadata.get("language_info") == STORED and _kernel(metadata) == KERNEL:
                metadata["language_info"] = dict(IPythonKernel.language_info)
        return model

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        if model.get("type") == "notebook" and model.get("content"):
            metadata = model["content"].get("metadata", {})
            reported = metadata.get("language_info") == IPythonKernel.language_info
            if reported and await self._names_it_alone(path):
                metadata["language_info"] = STORED
        return await super().save(model, path)

    async def _names_it_alone(self, path: str) -> bool:
        """Tell whether the file, as it is now, has the name of its language and no more."""
        if not await self.file_exists(path):
            return False
        stored = await super().get(path, type="notebook")
        return stored["content"]["metadata"].get("language_info") == STORED


def _kernel(metadata: dict[str, Any]) -> str:
    return metadata.get("kernelspec", {}).get("name", "")
