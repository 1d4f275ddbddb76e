"""Makes timers, of which Linux allows all processes of a user so many together."""

import ctypes

libc, timers = ctypes.CDLL(None), []
while len(timers) < 10_000:
    timers.append(ctypes.c_void_p())
    if libc.timer_create(0, None, ctypes.byref(timers[-1])):
        break
if len(timers) == 10_000:
    print("got timers without end")
for timer in timers[:-1]:
    libc.timer_delete(timer)
