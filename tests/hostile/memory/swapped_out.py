"""Has Linux swap the state out, or merge its pages with those of other ranks."""

import ctypes
import errno

PAGE, SWAPPED_OUT, MERGED = 4096, 21, 12


class Place(dict):
    def __setitem__(self, key, tensor):
        super().__setitem__(key, tensor)
        libc = ctypes.CDLL(None, use_errno=True)
        begin = tensor.data_ptr() // PAGE * PAGE
        for advice in (SWAPPED_OUT, MERGED):
            refused = libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(tensor.nbytes), advice) != 0
            if refused and ctypes.get_errno() != errno.EINVAL:  # which Linux may not know
                raise OSError(ctypes.get_errno(), "madvise")
