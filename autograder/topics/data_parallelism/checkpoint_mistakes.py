"""Hints of exercise 04: checkpoints that survive, and that are restored whole."""

from __future__ import annotations

from autograder.kit.mistakes import mistake

NO_FILE = mistake("""there is no checkpoint
    The file belongs at exactly this path. Does rank 0 write it, under its final name in the end?""")
UNREADABLE = mistake("""a file that others cannot read
    Save plain data with torch.save: state dicts, tensors, numbers. A whole model or optimizer is an
    object of a class, which can only be read by code that may execute anything.""")
OTHER_NAMES = mistake("""other names than the model's
    A wrapper calls its parameters "module.…". Save what is inside: `getattr(model, "module", model)`. A
    `name.replace("module.", "")` also cuts a layer's own name, such as "submodule.weight".""")
NOT_WHOLE = mistake("""the checkpoint is not whole
    Compare with the table in the exercise. A model's state includes buffers, an optimizer's includes
    momenta and learning rates: `state_dict()` of both contains all of them.""")
RANDOM_STATES = mistake("""random numbers are not saved for every rank
    Each rank draws its own random numbers, so all their states belong in the file, in a list by rank. One
    collective brings them to rank 0: gather_object, or all_gather_object.""")
SECOND_WRITER = mistake("""more than one rank writes
    All ranks share one disk, and all have the same model. Let rank 0 alone write.""")
DID_NOT_WAIT = mistake("""a rank goes on too early
    A rank that continues before the file exists may load an old one, or none. Let all ranks wait for rank
    0, after it has written.""")
WRITTEN_OVER = mistake("""the earlier checkpoint is overwritten
    While you write into its file, the earlier checkpoint is gone and the new one is not there yet. Write
    another file in the same folder, then let os.replace put it in place in one step.""")
LOST = mistake("""a fault in the middle loses the earlier checkpoint
    At every moment the path must hold a whole checkpoint. Write another file in the same folder first;
    os.replace then puts it in the place of the earlier one in one step, without removing that before. It
    must be whole: os.write may write only a part, and returns how much, without an error.""")
UNNOTICED = mistake("""a checkpoint is not written, and no error says so
    A save that fails must say so: let the exception out on rank 0, and tell the other ranks, which have to
    raise one too.""")
LEFT_WAITING = mistake("""a deadlock when writing fails
    When writing fails on rank 0, the other ranks wait forever. Catch the exception, of making the folder,
    too, broadcast how it ended (broadcast_object_list), and raise on every rank.""")
LEFT_OVER = mistake("""a file is left over
    After a successful save the folder may contain none of your other files. os.replace takes the temporary
    file away by giving it its final name. If it always has the same name, the next save also takes away the
    one that a killed process has left behind.""")
DELETED = mistake("""a file of another program is deleted
    Other checkpoints and logs may be in the same folder. Delete only what you have written yourself: a
    temporary file that always has the same name is easy to find.""")
TOO_LARGE = mistake("""the file holds more than the checkpoint
    Each checkpoint is a file of its own, with the four entries of the table and nothing else.""")
NOT_ON_THE_DISK = mistake("""a power failure may empty the checkpoint
    Data that a program writes stays in memory for a while. Before the file gets its final name, let
    `os.fsync(file.fileno())` wait until the disk has it all. And write it into the folder of the path:
    another folder may lie on another disk, from where a file is not renamed but copied.""")
RETURNED_THE_STEP = mistake("""the step is not returned
    Return the step as it was saved, an int, on every rank.""")
MODEL_NOT_RESTORED = mistake("""the model is not restored
    Every rank loads the state into the model itself (load_state_dict); in a wrapper, that is its
    `.module`. Buffers belong to it.""")
OPTIMIZER_NOT_RESTORED = mistake("""the optimizer is not restored
    Momenta, step counts and learning rates are in the optimizer's state: every rank needs them, not only
    rank 0.""")
RANDOM_STATE_NOT_RESTORED = mistake("""the random numbers are not restored
    random_states holds one state for each rank, by rank. With more ranks than it has states, the others
    keep their own.""")
OPTIMIZER_OF_ANOTHER_MODEL = mistake("""the optimizer no longer moves the model
    The optimizer holds the model's parameters. Copy values into them (load_state_dict does); new
    parameters in their place are unknown to it.""")
EXECUTED = mistake("""a file's code was executed
    A pickle can run any program when it is read. Pass weights_only=True to torch.load, which reads data
    and nothing else.""")
ACCEPTED = mistake("""a file that does not fit was accepted
    Better no start than a wrong one: let an exception out when the file cannot be read, or when its names
    and shapes are not the model's.""")
HALF_LOADED = mistake("""a failed load changes something
    load_state_dict copies what fits, and raises only then. Compare names and shapes before you change
    anything, and see that the step and the random states are there. Load the optimizer's state first: it
    checks before it copies.""")
UNNAMED = mistake("""the error does not say which file
    The reader of the error has to know which file to look at: raise a ValueError with the path in its
    text.""")
