"""The metadata of the course's notebooks: their kernel, their language, and whether outputs are folded."""

# The language by its name alone: a notebook may be opened with any Python. See `contents`.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

# With it JupyterLab hides a cell's outputs until the cell is run, or the dots in their place are clicked;
# forges show them. Both keys mean the same, and JupyterLab writes both.
FOLDED = {"collapsed": True, "jupyter": {"outputs_hidden": True}}

# In the place of folded outputs JupyterLab shows the first line of the first one, which may be the answer to
# a question above. So this stands before them.
BLANK = {"output_type": "display_data", "data": {"text/html": "", "text/plain": ""}, "metadata": {}}
