"""Save the variables of a notebook kernel; this source code is executed in the kernel.

The kernel may run in any Python environment, so the code uses only the standard library, and
cloudpickle if it is installed.
"""

# The code runs in the kernel, where nothing is typed.
# mypy: ignore-errors


def _bai_dump_variables(directory, max_bytes, max_seconds):
    import json
    import os
    import pickle
    import time
    import types

    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle

    class Limited:
        def __init__(self, file, limit):
            self.file, self.left = file, limit

        def write(self, data):
            size = memoryview(data).nbytes
            self.left -= size
            if self.left < 0:
                raise OverflowError("the size limit of saved variables is reached")
            if time.monotonic() > deadline:
                raise TimeoutError("the time limit is reached")
            self.file.write(data)
            return size

    deadline = time.monotonic() + max_seconds
    shell = get_ipython()  # noqa: F821
    hidden = shell.user_ns_hidden
    saved, skipped, modules, left = [], [], {}, max_bytes
    for name, value in list(shell.user_ns.items()):
        if name.startswith("_") or (name in hidden and hidden[name] is value):
            continue
        if isinstance(value, types.ModuleType):
            modules[name] = value.__name__
            continue
        path = os.path.join(directory, f"{len(saved)}.pickle")
        try:
            if time.monotonic() > deadline:
                raise TimeoutError("the time limit is reached")
            with open(path, "wb") as file:
                pickler.dump(value, Limited(file, left))
            size = os.path.getsize(path)
        except (Exception, KeyboardInterrupt) as error:
            reason = str(error) or type(error).__name__
            skipped.append({"name": name[:200], "reason": reason[:200]})
            if os.path.exists(path):
                os.unlink(path)
            continue
        left -= size
        file_name = os.path.basename(path)
        saved.append({"name": name, "file": file_name, "bytes": size})
    content = {"saved": saved, "skipped": skipped, "modules": modules}
    temporary = os.path.join(directory, ".variables.json")
    with open(temporary, "w") as file:
        json.dump(content, file)
    os.replace(temporary, os.path.join(directory, "variables.json"))
