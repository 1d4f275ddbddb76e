"""Has Linux end other processes first when memory runs out, or the one that answers checks."""

import os

for process in filter(str.isdigit, os.listdir("/proc")):
    for score in ("-1000", "0", "1000"):
        try:
            with open(f"/proc/{process}/oom_score_adj", "w") as file:
                file.write(score)
            print("got", process, "to", score)
        except OSError:
            pass
