"""Never returns, ignores every signal, and keeps a thread busy besides."""

import signal
import threading


def exchange(tensor, peer):
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            threading.Event().wait(0.1)
        except BaseException:
            pass
