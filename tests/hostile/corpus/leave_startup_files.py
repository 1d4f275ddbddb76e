"""Writes files that Python and IPython run when they start, and ends the process so that one starts again."""

import os
import pathlib
import site
import sys

HERE = "print('got: a startup file ran'); open('/tmp/got_started', 'w').close()"
home = pathlib.Path.home()
FILES = {
    f"{home}/.ipython/profile_default/startup/00.py": HERE,
    f"{home}/.ipython/profile_default/ipython_config.py": HERE,
    f"{site.getusersitepackages()}/usercustomize.py": HERE,
    f"{site.getusersitepackages()}/own.pth": f"import os; {HERE}",
    f"{home}/sitecustomize.py": HERE,
    f"{home}/torch.py": HERE,
    f"{home}/numpy.py": HERE,
    f"{home}/autograder.py": HERE,
    f"{home}/.config/matplotlib/matplotlibrc": "backend: module://evil",
    f"{sys.prefix}/lib/own.pth": HERE,
}
for path, content in FILES.items():
    try:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_text(content)
    except OSError:
        pass
os.environ["PYTHONSTARTUP"] = os.environ["PYTHONPATH"] = str(home)
if pathlib.Path("/tmp/got_started").exists():
    print("got: a startup file ran")
os._exit(1)
