"""Prints, displays, raises and returns HTML with scripts, and the codes that rewrite a terminal's page."""

from IPython.display import HTML, Image, display

SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
print(SCRIPT, "\x1b]0;owned\x07\x1b[2J\x1b[31m")
display(HTML(SCRIPT))
display({"text/plain": SCRIPT, "text/html": SCRIPT, "application/javascript": "alert(1)"}, raw=True)
display({"image/png": f'"{SCRIPT}', "image/svg+xml": SCRIPT}, raw=True)
display({"image/png": "é"}, raw=True)


def exchange(tensor, peer):
    raise ValueError(f"{SCRIPT}\x1b]0;owned\x07")


raise ValueError(SCRIPT)
