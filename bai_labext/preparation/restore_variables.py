# Restore the variables that were saved before the session was stopped.
#
# Run this file in a notebook:  %run -i PATH_OF_THIS_FILE
# It reads only files of this folder, which the session wrote itself.
# mypy: ignore-errors


def _bai_restore_variables(directory):
    import importlib
    import json
    import os
    import pickle

    namespace = get_ipython().user_ns  # noqa: F821
    with open(os.path.join(directory, "variables.json")) as file:
        content = json.load(file)
    restored, failed = [], [(one["name"], one["reason"]) for one in content["skipped"]]
    for name, module in content["modules"].items():
        try:
            namespace[name] = importlib.import_module(module)
        except Exception as error:
            failed.append((name, str(error)))
    for one in content["saved"]:
        try:
            with open(os.path.join(directory, one["file"]), "rb") as file:
                namespace[one["name"]] = pickle.load(file)
            restored.append(one["name"])
        except Exception as error:
            failed.append((one["name"], str(error)))
    print("restored:", ", ".join(sorted(restored)) or "-")
    if failed:
        print("not restored:", "; ".join(f"{name} ({why})" for name, why in sorted(failed)))


import os as _bai_os  # noqa: E402

_bai_restore_variables(_bai_os.path.dirname(_bai_os.path.abspath(__file__)))
del _bai_restore_variables, _bai_os
